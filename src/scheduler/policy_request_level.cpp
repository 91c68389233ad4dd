#include "scheduler/policy_request_level.h"

#include <algorithm>

#include "scheduler/plan_pass.h"

namespace sluice {

// A choice may have to compute its prompt while the batch decodes.
std::int32_t RequestLevelPolicy::token_budget(const SchedulerOptions& options) const {
  return budget_beside_decodes(options);
}

// The prompts of a batch may take several steps; it is open until the first decode. Choices that
// waited for their leader belong to its batch and join it late.
void RequestLevelPolicy::plan(PlanPass& pass) {
  const auto running = pass.running();
  if (running.empty()) batch_end_ = pass.next_ticket();
  const bool open = std::none_of(running.begin(), running.end(),
                                 [&](std::int32_t slot) { return pass.decoding(slot); });
  Admission how{.rows = PromptRows::kWhole, .reservation = Reservation::kContext};
  if (open) {
    how.before_ticket = batch_end_;
    pass.admit_all(how);
    if (!pass.rows().empty()) return;
  }
  pass.decode_all();
  if (!pass.short_of_memory()) pass.admit_choices(how);
}

}  // namespace sluice
