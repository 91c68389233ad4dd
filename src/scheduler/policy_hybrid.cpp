#include "scheduler/policy_hybrid.h"

namespace sluice {

std::string_view HybridPolicy::name() const {
  switch (reservation_) {
    case Reservation::kPrompt: return "hybrid-only";
    case Reservation::kContext: return "hybrid";
    case Reservation::kMaxTokens: return "hybrid:max-tokens";
  }
  return "";
}

std::int32_t HybridPolicy::token_budget(const SchedulerOptions& options) const {
  return budget_beside_decodes(options);
}

void HybridPolicy::plan(PlanPass& pass) {
  pass.decode_all();
  if (pass.short_of_memory()) return;
  pass.admit_all({.rows = PromptRows::kWhole, .reservation = reservation_});
}

}  // namespace sluice
