// StepTimeCorrection: what measured steps teach about a predictor. A profile errs in a way of its
// own: the machine is warmer than it was, a curve has a bend that was not measured, attention grows
// faster than its law. Such errors come again with every step and are learnt; what is left is
// noise, and the margin is as wide as the noise is.
//
// A prediction is a sum of parts: the linear one, attention of the decodes, attention of chunks.
// Each part has a factor, and so has each range of tokens (a tile, where there are tiles). After a
// step the factors share its error in proportion to their parts (normalised least mean squares), so
// a step teaches little about what it has little of. An outlier counts as four usual errors.
//
// The margin is 1 + k times the usual error, and k moves until, of the steps with chunks beside
// decodes that are planned to take about as long as they may, one in a hundred takes longer.
//
// Pure arithmetic on what it is told: the same steps, the same predictions. O(1) a call, no
// allocation. Owner: the scheduler. Threads: the engine's. Times in nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

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
  // Knows nothing yet: predicts as the budget's predictor, with the budget's margin.
  // `most_tokens`: of a step.
  StepTimeCorrection(const TimeBudget& budget, std::int32_t most_tokens);

  double time_ns(const StepFeatures& f) const {
    const StepTimePredictor& p = budget_.predictor;
    return p.linear_ns(f) * linear_factor(f.tokens) + p.decode_attention_ns(f) * factors_.decodes +
           p.chunk_attention_ns(f) * factors_.chunks;
  }

  // How long a chunk that joins the step should be: `most` if the step stays within limit_ns with
  // it; else, of the longest that fits and those down to two thirds of it, the one that computes
  // the most tokens per time, which ends a tile where there are tiles. 0 when not even the least
  // fits.
  std::int32_t best_chunk(const StepFeatures& f, const ChunkChoice& choice, double limit_ns) const;

  // The factor of predictions before they are compared with a limit. At least 1.
  double margin() const { return margin_; }

  // A step took so long. Nothing is learnt from one that took no time, or with a budget that says
  // so (TimeBudget::learn).
  void observe(const StepFeatures& f, double measured_ns);

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
  // With tiles a range is a tile (or some) and has one factor; else factors pass smoothly from the
  // middle of one range to that of the next.
  struct Place {
    std::size_t range = 0;
    double next = 0;  // the share of the range behind it
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
  bool tiled_;
  std::int32_t width_;  // of a range, in tokens
  Factors factors_;
  std::array<double, kRanges> ranges_{};  // added to Factors::linear
  double usual_error_;                    // absolute, relative to the prediction
  double errors_in_margin_;
  double margin_;
};

}  // namespace sluice
