// LatencyPool: any number of durations in fixed memory (counters in logarithmic steps), with
// percentiles within 0.1 %, and exact count, mean, deviation, least and greatest. Nanoseconds to
// centuries. One thread at a time; 0.4 MB; adding allocates nothing and takes a few nanoseconds.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/clock.h"

namespace sluice {

class LatencyPool {
 public:
  LatencyPool();

  // Negative durations count as zero; REQUIRES: times >= 0.
  void add(Duration d, std::int64_t times = 1) {
    if (times == 0) return;
    const std::int64_t ns = std::max<std::int64_t>(d.count(), 0);
    buckets_[bucket_of(ns)] += times;
    count_ += times;
    const double seconds = static_cast<double>(ns) * 1e-9;
    const double weight = static_cast<double>(times);
    sum_ += seconds * weight;
    sum_squares_ += seconds * seconds * weight;
    least_ = std::min(least_, Duration(ns));
    greatest_ = std::max(greatest_, Duration(ns));
  }

  std::int64_t count() const { return count_; }
  // Zero when the pool is empty.
  Duration mean() const;
  Duration deviation() const;  // of the population, not of a sample
  Duration least() const;
  Duration greatest() const;
  // `percent` from 0 to 100: the smallest duration with that share of the pool at or below it
  // (the nearest rank: nothing is interpolated).
  Duration percentile(double percent) const;

 private:
  // 2^kStepBits counters for every power of two: a counter's width is at most 1/1024 of its values.
  static constexpr int kStepBits = 10;
  static constexpr std::size_t kSteps = std::size_t{1} << kStepBits;
  // Values below 2 * kSteps have a counter each; the greatest, 2^63 - 1, has the last.
  static std::size_t bucket_of(std::int64_t ns) {
    const auto value = static_cast<std::uint64_t>(ns);
    const int shift = 63 - kStepBits - std::countl_zero(value | kSteps);
    return static_cast<std::size_t>(shift) * kSteps + static_cast<std::size_t>(value >> shift);
  }
  static constexpr std::size_t kBuckets = (63 - kStepBits) * kSteps + kSteps;

  std::vector<std::int64_t> buckets_;
  std::int64_t count_ = 0;
  double sum_ = 0;          // seconds
  double sum_squares_ = 0;  // seconds squared
  Duration least_ = Duration::max();
  Duration greatest_{0};
};

}  // namespace sluice
