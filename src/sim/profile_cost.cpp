#include "sim/profile_cost.h"

#include <algorithm>
#include <cmath>

namespace sluice {

void ProfileCost::stage_times(const BatchPlan& plan, std::span<Duration> stages) {
  const double ns = predictor_.time_ns(step_features(plan, predictor_.window));
  stages[0] = Duration(std::llround(std::max(ns, 1.0)));
}

}  // namespace sluice
