// StreamedCost: a machine whose KV lies below its memory and is read again in every step, a layer
// ahead of the compute, as FlexGen does it (https://arxiv.org/abs/2303.06865). A stage takes as
// long as the slower of the two: the inner cost, or the copies of its layers. Such a machine has
// room for contexts beyond its memory. This engine does not work like that; the class is for
// comparisons. Owner: the simulated machine. Threads: as StepCost.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/hardware.h"
#include "sim/step_cost.h"

namespace sluice {

class StreamedCost final : public StepCost {
 public:
  // `link`: the copies of one rank; its block_bytes are not used. `token_bytes`: KV of one token in
  // all layers of one rank. `layers`: copies of a step. REQUIRES: inner has one stage.
  StreamedCost(std::unique_ptr<StepCost> inner, const TierCost& link, double token_bytes,
               std::int32_t layers);

  std::int32_t num_stages() const override { return 1; }
  void stage_times(const BatchPlan& plan, std::span<Duration> stages) override;
  Duration send_time(const BatchPlan& plan) const override { return inner_->send_time(plan); }
  Duration collective_time(const BatchPlan& plan) override { return inner_->collective_time(plan); }

 private:
  std::unique_ptr<StepCost> inner_;
  double latency_;        // of all layers, seconds
  double token_seconds_;  // of one token in all layers
};

}  // namespace sluice
