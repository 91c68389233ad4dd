// Histogram: counts of values in fixed buckets, as Prometheus defines it. Bucket i counts values
// <= bound i and > bound i - 1; one more bucket counts all values above the last bound. Recording
// is a binary search and three additions, and allocates nothing.
// Threads: one records and writes (in the server the event loop's).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

class Histogram {
 public:
  // REQUIRES: finite bounds in ascending order, at least one.
  explicit Histogram(std::vector<double> bounds);

  // Records `times` equal values. REQUIRES: the value is not NaN.
  void record(double value, std::int64_t times = 1);

  std::span<const double> bounds() const { return bounds_; }
  // By bucket, not cumulative; one more than bounds.
  std::span<const std::int64_t> counts() const { return counts_; }
  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }

  // An estimate of the q-quantile, 0 <= q <= 1, as Prometheus's histogram_quantile computes it:
  // linear within its bucket. The lowest bucket begins at 0 if its bound is positive. A quantile
  // above the last bound is that bound. Nothing when no value was recorded.
  std::optional<double> quantile(double q) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// Every mantissa times every power of ten, from `first` to `last`, both included:
// ({1, 2, 5}, 0.1, 20) is 0.1 0.2 0.5 1 2 5 10 20. REQUIRES: ascending mantissas in [1, 10).
std::vector<double> decade_bounds(std::span<const double> mantissas, double first, double last);

}  // namespace sluice
