#include "scheduler/policy_prefill_first.h"

#include <algorithm>

#include "scheduler/plan_pass.h"
#include "scheduler/scheduler.h"

namespace sluice {

// Any prompt fits in a step of its own.
std::int32_t PrefillFirstPolicy::token_budget(const SchedulerOptions& options) const {
  return std::max(options.token_budget, options.max_model_len);
}

void PrefillFirstPolicy::plan(PlanPass& pass) {
  pass.admit_all({.rows = PromptRows::kWhole});
  if (pass.rows().empty()) pass.decode_all();
}

}  // namespace sluice
