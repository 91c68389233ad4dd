#include "serverless/arrival_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace sluice {
namespace {

constexpr double kFirstEdge = 1e-3;  // seconds
constexpr double kBucketsPerDoubling = 4;

}  // namespace

DecayingRate::DecayingRate(TimePoint start, Duration half_life)
    : half_life_s_(to_seconds(half_life)), start_(start), last_(start) {
  CHECK(half_life.count() > 0);
}

void DecayingRate::add(TimePoint now) {
  CHECK(now >= last_);
  weight_ = weight_ * std::exp2(-half_lives(now - last_)) + 1;
  last_ = now;
}

double DecayingRate::per_second(TimePoint now) const {
  CHECK(now >= last_);
  const double weight = weight_ * std::exp2(-half_lives(now - last_));
  const double age = std::max(half_lives(now - start_), 0.125);
  // The integral of the weight over the time since the start.
  const double exposure_s = (1 - std::exp2(-age)) * half_life_s_ / std::numbers::ln2;
  return weight / exposure_s;
}

std::size_t GapHistogram::bucket_of(double seconds) {
  if (!(seconds > kFirstEdge)) return 0;
  const double bucket = std::ceil(std::log2(seconds / kFirstEdge) * kBucketsPerDoubling);
  return std::min(static_cast<std::size_t>(bucket), kBuckets - 1);
}

// A table, because exp2 would take most of the time of longer_than().
double GapHistogram::upper_edge(std::size_t bucket) {
  static const auto edges = [] {
    std::array<double, kBuckets> all{};
    for (std::size_t i = 0; i < kBuckets; ++i) {
      all[i] = kFirstEdge * std::exp2(static_cast<double>(i) / kBucketsPerDoubling);
    }
    return all;
  }();
  return edges[bucket];
}

void GapHistogram::add(Duration gap) {
  CHECK(gap.count() >= 0);
  const std::size_t bucket = bucket_of(to_seconds(gap));
  counts_[bucket] += 1;
  longest_ = std::max(longest_, bucket);
  count_ += 1;
  if (count_ < kMostGaps) return;
  for (float& count : counts_) count /= 2;
  count_ /= 2;
}

double GapHistogram::longer_than(double seconds) const {
  const std::size_t bucket = bucket_of(seconds);
  double longer = 0;
  for (std::size_t i = bucket + 1; i <= longest_; ++i) longer += static_cast<double>(counts_[i]);
  const double upper = upper_edge(bucket);
  const double lower = bucket == 0 ? 0 : upper_edge(bucket - 1);
  const double part = std::clamp((upper - seconds) / (upper - lower), 0.0, 1.0);
  return longer + part * static_cast<double>(counts_[bucket]);
}

double GapHistogram::probability_within(Duration elapsed, Duration horizon) const {
  const double alive = longer_than(to_seconds(elapsed));
  if (!(alive > 0)) return 0;
  return std::clamp(1 - longer_than(to_seconds(elapsed + horizon)) / alive, 0.0, 1.0);
}

void Arrivals::add(TimePoint now) {
  rate_.add(now);
  if (called_) gaps_.add(now - last_);
  called_ = true;
  last_ = now;
}

double Arrivals::expected_rate(TimePoint now, Duration horizon) const {
  CHECK(horizon.count() > 0);
  const double rate = rate_.per_second(now);
  if (gaps_.count() < kEnoughGaps) return rate;
  return std::max(rate, gaps_.probability_within(since_last(now), horizon) / to_seconds(horizon));
}

}  // namespace sluice
