#include "scheduler/step_time_correction.h"

#include <cmath>

namespace sluice {
namespace {

constexpr double kRate = 0.1;  // of the factors: each step corrects a tenth of the error
// The usual error grows faster than it shrinks, because a few good steps do not cover all cases.
// Without a profile it shrinks as fast, so that a slow time does not keep chunks short for long.
constexpr double kErrorGrows = 0.05;
constexpr double kErrorShrinks = 0.01;
// A step that takes too long widens the margin by a fifth of a usual error; 99 steps within the
// limit undo that. Steps far below the limit are ignored.
constexpr double kNearLimit = 0.75;
constexpr double kTooLong = 0.01;  // target share of steps that take too long
constexpr double kMarginRate = 0.2;
constexpr double kFirstErrorsInMargin = 2.5;
constexpr double kMostErrorsInMargin = 10;
// Without a profile: with three decode steps as the limit, steps are planned for two of them at
// least.
constexpr double kMostMarginWithoutProfile = 1.5;
constexpr double kOutlier = 4;         // usual errors
constexpr double kLeastError = 0.002;  // the usual error is never less, so that it can grow
constexpr double kLeastFactor = 0.1;
constexpr std::int32_t kSmoothWidth = 32;  // tokens in a range if there are no tiles

}  // namespace

StepTimeCorrection::StepTimeCorrection(const TimeBudget& budget, std::int32_t most_tokens)
    : budget_(budget),
      tiled_(budget.predictor.tile > 1),
      width_(tiled_ ? budget.predictor.tile : kSmoothWidth),
      usual_error_(std::max(kLeastError, (budget.margin - 1) / kFirstErrorsInMargin)),
      errors_in_margin_((budget.margin - 1) / usual_error_),
      margin_(budget.margin) {
  while (static_cast<std::size_t>(most_tokens / width_) + 2 > kRanges) width_ *= 2;
  if (budget.costs) measured_.emplace(*budget.costs);
}

std::int32_t StepTimeCorrection::best_chunk(const StepFeatures& f, const ChunkChoice& choice,
                                            double limit_ns) const {
  const auto time_with = [&](std::int32_t count) {
    StepFeatures step = f;
    step.add_chunk(choice.context, count, choice.ends_prompt && count == choice.most,
                   budget_.predictor.window);
    return time_ns(step);
  };
  if (time_with(choice.most) <= limit_ns) return choice.most;
  if (time_with(choice.least) > limit_ns) return 0;
  std::int32_t best = choice.least;
  if (!tiled_) {
    for (std::int32_t exceeds = choice.most; exceeds - best > 1;) {
      const std::int32_t middle = best + (exceeds - best) / 2;
      (time_with(middle) <= limit_ns ? best : exceeds) = middle;
    }
    return best;
  }
  // A single tile may have learnt a slow factor, so each is tried, from the last one down.
  double ns_per_token = 0;
  std::int32_t longest = choice.least;
  std::int32_t end = choice.most - 1 - (f.tokens + choice.most - 1) % width_;
  for (; end > choice.least && 3 * end >= 2 * longest; end -= width_) {
    const double ns = time_with(end);
    if (ns > limit_ns) continue;
    longest = std::max(longest, end);
    if (ns_per_token > 0 && ns >= ns_per_token * end) continue;
    best = end;
    ns_per_token = ns / end;
  }
  return best;
}

void StepTimeCorrection::observe(const StepFeatures& f, const StepFeatures& decodes,
                                 double measured_ns) {
  if (!budget_.learn || measured_ns <= 0) return;
  const double expected = time_ns(f);
  if (measured_) {
    measured_->observe(f, measured_ns);
    budget_.predictor = measured_->predictor();
  }
  if (expected <= 0) return;
  const double error = measured_ns / expected - 1;
  const double most = kOutlier * usual_error_;
  if (!measured_) learn_factors(f, expected * std::clamp(error, -most, most));
  const double longest = budget_.decode_steps > 0
                             ? decode_limit_ns(decodes)
                             : static_cast<double>(budget_.longest_step.count());
  const bool decodes_wait = f.chunk_tokens > 0 && f.chunk_tokens < f.tokens;
  if (decodes_wait && expected * margin_ > kNearLimit * longest) {
    learn_margin(error, measured_ns > longest);
  }
}

void StepTimeCorrection::learn_factors(const StepFeatures& f, double error_ns) {
  const StepTimePredictor& p = budget_.predictor;
  const double linear = p.linear_ns(f);
  const double decodes = p.decode_attention_ns(f);
  const double chunks = p.chunk_attention_ns(f);
  // The linear part has two factors, its own and that of the range, which learns half as fast.
  const Place place = place_of(f.tokens);
  const double range_part = 0.5 * (1 - place.next) * linear;
  const double next_part = 0.5 * place.next * linear;
  const double share = kRate * error_ns /
                       (linear * (linear + (1 - place.next) * range_part + place.next * next_part) +
                        decodes * decodes + chunks * chunks);
  const auto learn = [](double& factor, double change, double least) {
    factor = std::max(least, factor + change);
  };
  learn(factors_.linear, share * linear, kLeastFactor);
  learn(factors_.decodes, share * decodes, kLeastFactor);
  learn(factors_.chunks, share * chunks, kLeastFactor);
  const double least = kLeastFactor - factors_.linear;
  learn(ranges_[place.range], share * range_part, least);
  learn(ranges_[place.range + 1], share * next_part, least);
}

void StepTimeCorrection::learn_margin(double error, bool too_long) {
  const double seen = std::min(std::abs(error), kOutlier * usual_error_);
  const double rate = seen > usual_error_ || measured_ ? kErrorGrows : kErrorShrinks;
  usual_error_ = std::max(kLeastError, usual_error_ + rate * (seen - usual_error_));
  const double change = too_long ? 1 - kTooLong : -kTooLong;
  errors_in_margin_ =
      std::clamp(errors_in_margin_ + kMarginRate * change, 0.0, kMostErrorsInMargin);
  margin_ = 1 + errors_in_margin_ * usual_error_;
  if (measured_) margin_ = std::min(margin_, kMostMarginWithoutProfile);
}

}  // namespace sluice
