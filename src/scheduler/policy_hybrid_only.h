// `hybrid-only`: hybrid batches without chunked prefill, an ablation of stall-free batching
// (Sarathi-Serve, table 4). Prompts run beside decodes, each in one row, however long.
// docs/scheduling.md has the rules.
#pragma once

#include "scheduler/policy.h"

namespace sluice {

class HybridOnlyPolicy final : public Policy {
 public:
  std::string_view name() const override { return "hybrid-only"; }
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  void plan(PlanPass& pass) override;
};

}  // namespace sluice
