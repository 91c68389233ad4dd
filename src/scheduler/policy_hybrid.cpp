#include "scheduler/policy_hybrid.h"

#include <algorithm>

#include "scheduler/plan_pass.h"
#include "scheduler/scheduler.h"

namespace sluice {

// A whole context fits beside all the decodes there can be.
std::int32_t HybridPolicy::token_budget(const SchedulerOptions& options) const {
  return std::max(options.token_budget, options.max_model_len + options.max_num_seqs);
}

void HybridPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  if (pass.short_of_memory()) return;
  pass.admit_all({.rows = PromptRows::kWhole,
                  .reservation = reservation_ == HybridReservation::kContext
                                     ? Reservation::kContext
                                     : Reservation::kMaxTokens});
}

}  // namespace sluice
