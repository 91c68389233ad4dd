#include "scheduler/policy_hybrid_only.h"

#include <algorithm>

#include "scheduler/plan_pass.h"
#include "scheduler/scheduler.h"

namespace sluice {

// A whole context fits beside all the decodes there can be.
std::int32_t HybridOnlyPolicy::token_budget(const SchedulerOptions& options) const {
  return std::max(options.token_budget, options.max_model_len + options.max_num_seqs);
}

void HybridOnlyPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  if (!pass.short_of_memory()) pass.admit_all({.rows = PromptRows::kWhole});
}

}  // namespace sluice
