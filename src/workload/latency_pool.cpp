#include "workload/latency_pool.h"

#include <cmath>

#include "base/check.h"

namespace sluice {

namespace {

Duration rounded(double seconds) {
  return Duration(static_cast<std::int64_t>(std::llround(seconds * 1e9)));
}

}  // namespace

LatencyPool::LatencyPool() : buckets_(kBuckets, 0) {}

Duration LatencyPool::mean() const {
  return count_ == 0 ? Duration(0) : rounded(sum_ / static_cast<double>(count_));
}

Duration LatencyPool::deviation() const {
  if (count_ == 0) return Duration(0);
  const double mean = sum_ / static_cast<double>(count_);
  // Rounding may leave a difference just below zero when all durations are equal.
  return rounded(
      std::sqrt(std::max(sum_squares_ / static_cast<double>(count_) - mean * mean, 0.0)));
}

Duration LatencyPool::least() const { return count_ == 0 ? Duration(0) : least_; }

Duration LatencyPool::greatest() const { return greatest_; }

Duration LatencyPool::percentile(double percent) const {
  CHECK(percent >= 0 && percent <= 100);
  if (count_ == 0) return Duration(0);
  // 99.9 % of 1,000 is the 999th, though the product may come out a hair above 999.
  const double share = percent / 100.0 * static_cast<double>(count_) * (1 - 1e-12);
  const auto rank =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(share)), 1, count_);
  if (rank == count_) return greatest_;
  std::int64_t below = 0;
  std::size_t bucket = 0;
  while ((below += buckets_[bucket]) < rank) ++bucket;
  std::int64_t middle = static_cast<std::int64_t>(bucket);
  if (bucket >= 2 * kSteps) {
    const auto shift = static_cast<int>(bucket / kSteps - 1);
    const auto step = static_cast<std::int64_t>(kSteps + bucket % kSteps);
    middle = (step << shift) + (std::int64_t{1} << (shift - 1));
  }
  return std::clamp(Duration(middle), least_, greatest_);
}

}  // namespace sluice
