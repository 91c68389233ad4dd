#include "serverless/prefill_meter.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

constexpr double kKeep = 0.95;  // of the weight of older prompts, at each new one

}  // namespace

PrefillTime PrefillMeter::line() const {
  const double tokens = tokens_ / weight_;
  const double seconds = seconds_ / weight_;
  const double variance = tokens_tokens_ / weight_ - tokens * tokens;
  double slope = 0;
  // Prompts of nearly one length say nothing about others.
  if (variance > 1e-6 * tokens * tokens) {
    const double covariance = tokens_seconds_ / weight_ - tokens * seconds;
    slope = std::clamp(covariance / variance, 0.0, seconds / tokens);
  }
  return {seconds - slope * tokens, slope};
}

void PrefillMeter::add(std::int64_t tokens, std::int64_t ahead, Duration took) {
  CHECK(tokens > 0 && ahead >= 0 && took.count() >= 0);
  const auto x = static_cast<double>(ahead + tokens);
  const double y = to_seconds(took);
  const double distance = count_ > 0 ? std::abs(y - line().seconds(ahead + tokens)) : 0;
  ++count_;
  weight_ = kKeep * weight_ + 1;
  prompts_ = kKeep * prompts_ + static_cast<double>(tokens);
  tokens_ = kKeep * tokens_ + x;
  seconds_ = kKeep * seconds_ + y;
  tokens_tokens_ = kKeep * tokens_tokens_ + x * x;
  tokens_seconds_ = kKeep * tokens_seconds_ + x * y;
  distance_ = kKeep * distance_ + distance;
}

PrefillTime PrefillMeter::usual() const {
  if (count_ < kEnough) return {};
  PrefillTime time = line();
  time.step_s += 2 * distance_ / weight_;
  return time;
}

}  // namespace sluice
