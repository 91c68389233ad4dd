// `prefill-first`: what vLLM did before version 1. A step has prompts or decodes, never both, and
// prompts go first, whole, as many as fit: decodes stall meanwhile. docs/scheduling.md has the
// rules.
#pragma once

#include "scheduler/policy.h"

namespace sluice {

class PrefillFirstPolicy final : public Policy {
 public:
  std::string_view name() const override { return "prefill-first"; }
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  void plan(PlanPass& pass) override;
};

}  // namespace sluice
