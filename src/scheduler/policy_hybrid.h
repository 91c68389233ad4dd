// `hybrid`: Orca's iteration-level scheduling. Every decode runs in every step, and prompts join
// them whole, as many as fit. All the blocks a sequence may come to need are promised when it is
// admitted, so nobody is ever preempted: for a whole context (`hybrid`, as the Sarathi-Serve paper
// measured it) or for its own max_tokens (`hybrid:max-tokens`, as Orca has it).
// docs/scheduling.md has the rules.
#pragma once

#include <cstdint>

#include "scheduler/policy.h"

namespace sluice {

enum class HybridReservation : std::uint8_t { kContext, kMaxTokens };

class HybridPolicy final : public Policy {
 public:
  explicit HybridPolicy(HybridReservation reservation) : reservation_(reservation) {}

  std::string_view name() const override {
    return reservation_ == HybridReservation::kContext ? "hybrid" : "hybrid:max-tokens";
  }
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  void plan(PlanPass& pass) override;

 private:
  HybridReservation reservation_;
};

}  // namespace sluice
