#include "scheduler/policy_unified.h"

#include "scheduler/plan_pass.h"

namespace sluice {

void UnifiedPolicy::plan(PlanPass& pass) {
  pass.advance_all();
  if (!pass.short_of_memory()) pass.admit_all({});
}

}  // namespace sluice
