// `vtc`: stall-free batches, admitted fairly by client: the Virtual Token Counter (Sheng et al.,
// "Fairness in Serving Large Language Models", OSDI 2024). Of those who wait with the best
// priority, the client that was served least comes next; the counters are ClientLedger's.
// docs/scheduling.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/policy.h"

namespace sluice {

// What a client is charged for.
struct VtcWeights {
  std::int64_t input = 1;   // per prompt token computed
  std::int64_t output = 2;  // per decode
};

class VtcPolicy final : public Policy {
 public:
  explicit VtcPolicy(VtcWeights weights = {}) : weights_(weights) {}

  std::string_view name() const override { return "vtc"; }
  bool plans_by_time() const override { return true; }
  void plan(PlanPass& pass) override;

 private:
  void charge_decodes(PlanPass& pass) const;
  void charge_prompt(PlanPass& pass, std::int32_t slot) const;
  static std::optional<std::size_t> least_served(const PlanPass& pass);

  VtcWeights weights_;
};

}  // namespace sluice
