#include "scheduler/policy_stall_free.h"

#include "scheduler/plan_pass.h"

namespace sluice {

// Decodes count in the budget and are never limited by it: that is what keeps streams from
// stalling. Nobody is admitted in a step that was short of memory, or the victim would come back
// at once and be preempted again.
void StallFreePolicy::plan(PlanPass& pass) {
  pass.decode_all();
  pass.prefill_all();
  if (!pass.short_of_memory()) pass.admit_all({});
}

}  // namespace sluice
