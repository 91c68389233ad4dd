// `request-level`: FasterTransformer's batching. Those who wait form a batch: their prompts run,
// whole, and then they decode until the last of them has ended; nobody joins meanwhile. Blocks for
// a whole context are promised on admission. docs/scheduling.md has the rules.
#pragma once

#include <cstdint>

#include "scheduler/policy.h"

namespace sluice {

class RequestLevelPolicy final : public Policy {
 public:
  std::string_view name() const override { return "request-level"; }
  std::int32_t token_budget(const SchedulerOptions& options) const override;
  void plan(PlanPass& pass) override;

 private:
  std::uint64_t batch_end_ = 0;  // tickets below it had arrived when the batch began
};

}  // namespace sluice
