#include "scheduler/measured_step_times.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

// The share of a new step in the average of its range, once there are a few.
constexpr double kRate = 0.2;
// The part of a step's relative error by which the averages of other ranges change.
constexpr double kSharedRate = 0.1;
constexpr double kLargestError = 1;  // of one step, for them
// The average of fewer steps says little: one of them may have been slow, such as the first one
// after a rest, and the average is wrong, not the speed of the machine.
constexpr int kFewSteps = 5;
constexpr double kLeastShare = 0.1;  // of a step's time that is not attention, at least

std::size_t range_of(std::int32_t tokens, std::size_t ranges) {
  const auto range = std::bit_width(static_cast<std::uint32_t>(tokens - 1));
  return std::min(static_cast<std::size_t>(range), ranges - 1);
}

}  // namespace

void MeasuredStepTimes::observe(const StepFeatures& f, double measured_ns) {
  if (measured_ns <= 0 || f.rows == 0) return;
  const double attention = predictor_.num_knots > 0 ? predictor_.attention_ns(f) : 0;
  const double ns = std::max(measured_ns - attention, kLeastShare * measured_ns);
  Range& range = ranges_[range_of(f.tokens, ranges_.size())];
  if (range.steps >= kFewSteps) {
    const double error = std::min(ns / predictor_.linear_ns(f) - 1, kLargestError);
    for (Range& other : ranges_) {
      if (&other != &range) other.ns *= 1 + kSharedRate * error;
    }
  }
  ++range.steps;
  // The second step replaces the first, for which a process had to page its weights in.
  const double rate = std::max(kRate, 1.0 / std::max(1, range.steps - 1));
  range.tokens += rate * (f.tokens - range.tokens);
  range.ns += rate * (ns - range.ns);
  make_curve();
}

void MeasuredStepTimes::make_curve() {
  StepTimePredictor& p = predictor_;
  p.num_knots = 0;
  p.window = costs_.window;
  const auto add = [&p](std::int32_t tokens, double ns) {
    p.knots[static_cast<std::size_t>(p.num_knots++)] = {tokens, ns};
  };
  // A step takes no longer than longer ones did. Without this, the first prompt after a start,
  // whose step was slow, would keep later prompts at the shortest chunks.
  std::array<double, kRanges> at_most{};
  double least = std::numeric_limits<double>::max();
  for (std::size_t i = ranges_.size(); i-- > 0;) {
    if (ranges_[i].steps > 0) least = std::min(least, ranges_[i].ns);
    at_most[i] = least;
  }
  double read_ns = 0;
  StepTimePredictor::Knot last;
  // On the line from the last knot to the average of a longer range.
  const auto on_line = [&](std::int32_t tokens, std::size_t longer) {
    const double share = (tokens - last.tokens) / (ranges_[longer].tokens - last.tokens);
    return last.ns + share * (std::max(at_most[longer], last.ns) - last.ns);
  };
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].steps == 0) continue;
    const auto tokens =
        std::max(static_cast<std::int32_t>(std::lround(ranges_[i].tokens)), last.tokens + 1);
    double ns = at_most[i];
    if (p.num_knots == 0) {
      // The first range seen gives the time of any shorter step.
      read_ns = ns;
      add(0, read_ns);
    } else {
      // Without this limit, one slow step of a range would keep all later steps out of it.
      ns = std::min(ns, last.ns * tokens / last.tokens);
      // Reading and computing one after the other or at once, a step takes no longer than on the
      // line between a shorter and a longer one.
      for (std::size_t k = i + 1; k < ranges_.size() && ranges_[i].steps < kFewSteps; ++k) {
        if (ranges_[k].steps > 0) ns = std::min(ns, on_line(tokens, k));
      }
    }
    last = {tokens, ns};
    add(last.tokens, last.ns);
  }
  const double token_ns = last.ns / last.tokens;
  add(2 * last.tokens, 2 * last.ns);
  p.decode_context_ns = read_ns * costs_.position_reads;
  p.chunk_context_ns = read_ns * costs_.position_reads;
  p.chunk_work_ns = token_ns * costs_.pair_tokens;
}

}  // namespace sluice
