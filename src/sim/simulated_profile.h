// The profile that `sluice profile` would measure if the simulated machine were real: the same
// grid, the same fit, steps of the cost model with noise. A predictor in simulation then has errors
// like one that was fitted to a machine. One thread.
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
  double noise = 0.05;          // each step takes up to so much more or less, relative
  // Distortion of the fitted predictor, as on a machine that has changed since it was measured: all
  // predictions are multiplied by `scale`, and each piece of its curve and each coefficient
  // besides by a factor of its own, up to 1 + skew or down to 1 / (1 + skew).
  double scale = 1;
  double skew = 0;
  std::uint64_t seed = 0;
};

// Steps go through all stages: a pipeline's step takes the sum of its stages.
Result<MachineProfile> profile_simulated(StepCost& cost, const SimulatedProfileOptions& options);

}  // namespace sluice
