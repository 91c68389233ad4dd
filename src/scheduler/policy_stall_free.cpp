#include "scheduler/policy_stall_free.h"

#include "scheduler/plan_pass.h"

namespace sluice {

void StallFreePolicy::plan(PlanPass& pass) {
  run_decodes(pass);
  continue_prefills(pass);
  admit_waiting(pass);
}

// Decodes count in the budget and are never limited by it: that is what keeps streams from
// stalling.
void StallFreePolicy::run_decodes(PlanPass& pass) {
  for (std::size_t i = 0; i < pass.running().size(); ++i) {
    const std::int32_t slot = pass.running()[i];
    if (pass.decode_ready(slot)) pass.decode(slot);
  }
}

void StallFreePolicy::continue_prefills(PlanPass& pass) {
  for (std::size_t i = 0; i < pass.running().size() && pass.tokens_left() > 0; ++i) {
    const std::int32_t slot = pass.running()[i];
    if (pass.prefilling(slot)) pass.prefill(slot, pass.tokens_left());
  }
}

// Strictly in order: when the head does not fit, nobody overtakes it. Not in a step that was
// short of memory, or the victim would come back at once and be preempted again.
void StallFreePolicy::admit_waiting(PlanPass& pass) {
  if (pass.short_of_memory()) return;
  while (pass.tokens_left() > 0 && pass.admit_next(pass.tokens_left())) {
  }
}

}  // namespace sluice
