#include "apps/local_engine.h"

#include <memory>
#include <utility>

#include "apps/kv_disk.h"
#include "apps/kv_ram.h"
#include "apps/make_device.h"
#include "apps/save_rests.h"
#include "apps/tbt_goal.h"
#include "offload/lent_tier.h"

namespace sluice {

Result<LocalEngine> load_local_engine(const std::string& directory, const EngineOptions& options,
                                      const Clock& clock, StartupTimeline& timeline,
                                      Snapshot& snapshot, const UrgentWork* urgent) {
  LocalEngine local;
  local.pool = make_pool(options, urgent);
  ASSIGN_OR_RETURN(local.device, make_device(options, *local.pool));
  timeline.mark("device");
  ASSIGN_OR_RETURN(const EngineOptions chosen, with_token_budget(directory, options, *local.device,
                                                                 *local.pool, clock, snapshot));
  if (needs_profile(options.budget_mode)) timeline.mark("token budget");
  ASSIGN_OR_RETURN(LoadedExecutor executor, load_executor(directory, chosen, *local.device,
                                                          *local.pool, timeline, &snapshot));
  std::unique_ptr<KeepingTier> ram;
  if (chosen.kv_ram) {
    ASSIGN_OR_RETURN(ram, open_kv_ram(*chosen.kv_ram, *local.device, executor));
  }
  if (chosen.kv_disk) {
    RETURN_IF_ERROR(add_kv_disk(directory, chosen, snapshot.model(), *local.device, clock,
                                std::move(ram), executor));
    timeline.mark("KV disk");
  } else if (ram != nullptr) {
    auto added = add_tier(std::move(ram), TierEviction::kLeastRecent, executor);
    if (!added) return with_context("--kv-ram", added.error());
  }
  if (chosen.lent_memory) {
    auto tier = LentTier::open(chosen.lent_memory, executor.contents->block_bytes(),
                               save_rests_beside(*local.device));
    if (!tier) return with_context("--borrow-pages", tier.error());
    auto added = add_tier(*std::move(tier), TierEviction::kLeastRecent, executor);
    if (!added) {
      return with_context("--borrow-pages", added.error());
    }
  }
  local.loaded = make_engine(std::move(executor), clock, timeline);
  return local;
}

}  // namespace sluice
