// ProfileCost: the step times that a machine's measured profile predicts (src/profile), used
// instead of a hardware model. One stage. Owner: the simulation. Threads: one.
#pragma once

#include "scheduler/step_time_predictor.h"
#include "sim/step_cost.h"

namespace sluice {

class ProfileCost final : public StepCost {
 public:
  explicit ProfileCost(const StepTimePredictor& predictor) : predictor_(predictor) {}

  std::int32_t num_stages() const override { return 1; }
  void stage_times(const BatchPlan& plan, std::span<Duration> stages) override;
  Duration send_time(const BatchPlan&) const override { return Duration(0); }

 private:
  StepTimePredictor predictor_;
};

}  // namespace sluice
