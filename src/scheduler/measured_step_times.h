// MeasuredStepTimes: a predictor without a profile, made of the steps that ran. Each range of token
// counts, a power of two wide, keeps a moving average of its steps' times without attention. The
// predictor's curve goes through these averages. Beyond the longest step seen, a token costs what
// it costs there on average, which is too much where weights are read once for all tokens; so the
// first chunks are short, and longer ones follow as steps show that they are cheap. For the same
// reason a token of a longer step never costs more than one of a shorter step, and a shorter step
// takes no longer than a longer one did. The average of a few steps is not believed where it lies
// above the line between a shorter and a longer range: the first step after a rest may take four
// times as long. A step that takes longer or shorter than the average of many also changes the
// averages of other ranges a little: the machine may have become slower or faster, and those ranges
// may not run again soon.
//
// The cost of attention follows from the model's shape: computing a query-key pair is a known part
// of a token's matmuls, and reading a position's KV is a known part of reading the weights.
// Deterministic; a call takes time for each pair of ranges, of which there are 17; no allocation.
// Owner: StepTimeCorrection. Times in nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "scheduler/step_time_predictor.h"

namespace sluice {

// A model's shape as a predictor sees it.
struct StepCosts {
  double pair_tokens = 0;     // attention of one query-key pair, in matmuls of one token
  double position_reads = 0;  // reading the KV of a position, in reads of all weights
  std::int32_t window = 0;    // StepTimePredictor::window
};

class MeasuredStepTimes {
 public:
  explicit MeasuredStepTimes(const StepCosts& costs) : costs_(costs) {}

  void observe(const StepFeatures& f, double measured_ns);

  // Without knots until a step was observed.
  const StepTimePredictor& predictor() const { return predictor_; }

 private:
  static constexpr std::size_t kRanges = 17;
  struct Range {
    int steps = 0;
    double tokens = 0;  // averages
    double ns = 0;
  };

  void make_curve();

  StepCosts costs_;
  std::array<Range, kRanges> ranges_{};  // range i: more than 2^(i-1) and at most 2^i tokens
  StepTimePredictor predictor_;
};

}  // namespace sluice
