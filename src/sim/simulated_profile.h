// The profile that `sluice profile` would measure if the simulated machine were real: the same
// grid, the same fit, steps of the cost model with noise. A predictor in simulation then has errors
// like a predictor that was fitted to a real machine. One thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kv/kv_manager.h"
#include "profile/machine_profile.h"
#include "sim/step_cost.h"

namespace sluice {

struct SimulatedProfileOptions {
  KvOptions kv;                 // of the engine: slots, context, blocks
  std::int32_t max_tokens = 0;  // of the largest step to measure
  double noise = 0.05;          // largest relative deviation of a step's time
  // Distortion of the fitted predictor, as if the machine had changed since it was measured. All
  // predictions are multiplied by `scale`. In addition, each piece of the curve and each
  // coefficient has its own factor between 1 / (1 + skew) and 1 + skew.
  double scale = 1;
  double skew = 0;
  std::uint64_t seed = 0;
};

// Steps go through all stages: a pipeline's step takes the sum of its stages.
Result<MachineProfile> profile_simulated(StepCost& cost, const SimulatedProfileOptions& options);

}  // namespace sluice
