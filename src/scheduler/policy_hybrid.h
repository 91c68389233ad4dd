// Hybrid batches without chunked prefill: every decode runs in every step, and prompts join them
// whole, as many as fit. What a sequence is promised when it is admitted makes three policies:
// `hybrid-only`        its prompt, an ablation of stall-free batching (Sarathi-Serve, table 4)
// `hybrid`             a whole context, Orca as the Sarathi-Serve paper measured it
// `hybrid:max-tokens`  its prompt and its own max_tokens, as Orca has it
// Under the last two nobody is ever preempted. docs/scheduling.md has the rules.
#pragma once

#include "scheduler/plan_pass.h"
#include "scheduler/policy.h"

namespace sluice {

class HybridPolicy final : public Policy {
 public:
  explicit HybridPolicy(Reservation reservation) : reservation_(reservation) {}

  std::string_view name() const override;
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  void plan(PlanPass& pass) override;

 private:
  Reservation reservation_;
};

}  // namespace sluice
