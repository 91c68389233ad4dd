#include "apps/local_engine.h"

#include "apps/make_device.h"
#include "apps/tbt_goal.h"

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
  if (options.budget_mode != BudgetMode::kTokens) timeline.mark("token budget");
  ASSIGN_OR_RETURN(local.loaded, load_engine(directory, chosen, *local.device, *local.pool, clock,
                                             timeline, &snapshot));
  return local;
}

}  // namespace sluice
