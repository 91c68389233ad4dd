// StepTimeCorrection: corrects a predictor by the measured times of steps. A profile has systematic
// errors: the machine is warmer than it was, a curve has a bend that was not measured, attention
// grows faster than its formula. These errors repeat in every step and are learnt. The remaining
// errors are noise, which the margin covers.
//
// A prediction is a sum of parts: the linear one, attention of the decodes, attention of chunks.
// Each part has a correction factor, and so has each range of token counts (one tile, if the curve
// has tiles). After a step, each factor is corrected in proportion to its part of the prediction
// (normalised least mean squares). An error above four usual errors is clamped to that.
//
// Without a profile, moving averages of the measured times are the predictor, and there are no
// factors (measured_step_times.h).
//
// The margin is 1 + k times the usual error. k is adjusted to keep 99 % of the full mixed steps
// (chunks with decodes, planned close to the time limit) within the limit. Without a profile it is
// at most 1.5.
//
// Deterministic: the same steps give the same predictions. O(1) a call, no allocation. Owner: the
// scheduler. Threads: the engine's. Times in nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "scheduler/measured_step_times.h"
#include "scheduler/step_time_predictor.h"
#include "scheduler/time_budget.h"

namespace sluice {

// A chunk of `least` to `most` tokens, 1 or more, that may join a step.
struct ChunkChoice {
  std::int32_t context = 0;
  std::int32_t least = 0;
  std::int32_t most = 0;
  bool ends_prompt = false;  // with `most` tokens
};

class StepTimeCorrection {
 public:
  // Starts with the budget's predictor and margin, or with the costs and no predictor.
  // `most_tokens`: the largest number of tokens in a step.
  StepTimeCorrection(const TimeBudget& budget, std::int32_t most_tokens);

  // False while there is no predictor yet: before the first step without a profile. All times are 0
  // then.
  bool known() const { return budget_.predictor.num_knots > 0; }

  double time_ns(const StepFeatures& f) const {
    if (!known()) return 0;
    const StepTimePredictor& p = budget_.predictor;
    return p.linear_ns(f) * linear_factor(f.tokens) + p.decode_attention_ns(f) * factors_.decodes +
           p.chunk_attention_ns(f) * factors_.chunks;
  }

  // The length in tokens of a chunk that joins the step. Returns `most` if the step then stays
  // within limit_ns. Otherwise returns the most efficient length (tokens per time) between the
  // longest that fits and two thirds of it; with tiles, that length ends a tile. Returns 0 when
  // `least` does not fit.
  std::int32_t best_chunk(const StepFeatures& f, const ChunkChoice& choice, double limit_ns) const;

  // Predictions are multiplied by it before they are compared with a limit. At least 1.
  double margin() const { return margin_; }

  // Learns from a step and its measured time. `decodes`: the step without its chunks. Does nothing
  // if the time is 0 or TimeBudget::learn is false.
  void observe(const StepFeatures& f, const StepFeatures& decodes, double measured_ns);

  // The longest time of a step with these decodes that the budget without a goal allows, before the
  // margin. REQUIRES: TimeBudget::decode_steps > 0, known().
  double decode_limit_ns(const StepFeatures& decodes) const {
    return budget_.decode_steps * time_ns(decodes);
  }

 private:
  static constexpr std::size_t kRanges = 128;

  struct Factors {
    double linear = 1;  // of all ranges
    double decodes = 1;
    double chunks = 1;
  };

  std::size_t range_of(std::int32_t tokens) const {
    const auto range = static_cast<std::size_t>((tokens + width_ - 1) / width_);
    return std::min(range, kRanges - 2);
  }
  // With tiles, a range is one or more tiles and has one factor. Otherwise the factor is
  // interpolated between the ranges on both sides.
  struct Place {
    std::size_t range = 0;
    double next = 0;  // the weight of the next range
  };
  Place place_of(std::int32_t tokens) const {
    if (tiled_) return {range_of(tokens), 0};
    const double position = static_cast<double>(tokens) / width_;
    const auto range = static_cast<std::size_t>(position);
    return {std::min(range, kRanges - 2), std::min(position - static_cast<double>(range), 1.0)};
  }
  double linear_factor(std::int32_t tokens) const {
    const Place place = place_of(tokens);
    return factors_.linear + ranges_[place.range] * (1 - place.next) +
           ranges_[place.range + 1] * place.next;
  }
  void learn_factors(const StepFeatures& f, double error_ns);
  void learn_margin(double error, bool too_long);

  TimeBudget budget_;
  std::optional<MeasuredStepTimes> measured_;  // without a profile; no factors then
  bool tiled_;
  std::int32_t width_;  // of a range, in tokens
  Factors factors_;
  std::array<double, kRanges> ranges_{};  // added to Factors::linear
  double usual_error_;                    // absolute, relative to the prediction
  double errors_in_margin_;
  double margin_;
};

}  // namespace sluice
