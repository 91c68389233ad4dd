// A step time predictor for tests with a cost per token; tests set further terms on it.
// Values: plain; any thread.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "base/check.h"
#include "scheduler/step_time_predictor.h"

namespace sluice {

inline StepTimePredictor predictor_of_curve(std::initializer_list<StepTimePredictor::Knot> knots) {
  CHECK(knots.size() >= 2 && knots.size() <= StepTimePredictor::kMaxKnots);
  StepTimePredictor predictor;
  std::copy(knots.begin(), knots.end(), predictor.knots.begin());
  predictor.num_knots = static_cast<std::int32_t>(knots.size());
  return predictor;
}

}  // namespace sluice
