// `stall-free`: chunked prefill and stall-free batching (Sarathi-Serve, Algorithm 3). Every
// running decode runs in every step; prompts fill the rest of the token budget in chunks, those
// already running first, then new ones in order of arrival. docs/scheduling.md has the rules.
#pragma once

#include "scheduler/policy.h"

namespace sluice {

class StallFreePolicy final : public Policy {
 public:
  std::string_view name() const override { return "stall-free"; }
  bool plans_by_time() const override { return true; }
  void plan(PlanPass& pass) override;
};

}  // namespace sluice
