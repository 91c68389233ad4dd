// `unified`: vLLM 1's rule. There are no phases: each running sequence has tokens to catch up, one
// when it decodes, the rest of its prompt otherwise, and takes them in service order while the
// token budget lasts; what is left admits new ones. docs/scheduling.md has the rules.
#pragma once

#include "scheduler/policy.h"

namespace sluice {

class UnifiedPolicy final : public Policy {
 public:
  std::string_view name() const override { return "unified"; }
  void plan(PlanPass& pass) override;
};

}  // namespace sluice
