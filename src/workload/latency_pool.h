// LatencyPool: any number of durations in fixed memory (counters in logarithmic steps), with
// percentiles within 0.1 %, and exact count, mean, deviation, least and greatest. Nanoseconds to
// hours. One thread at a time; 0.4 MB; adding allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace sluice {

class LatencyPool {
 public:
  LatencyPool();

  void add(Duration d, std::int64_t times = 1);  // negative ones count as zero
  void merge(const LatencyPool& other);

  std::int64_t count() const { return count_; }
  // Zero when the pool is empty.
  Duration mean() const;
  Duration deviation() const;
  Duration least() const;
  Duration greatest() const;
  // `percent` from 0 to 100: the smallest duration with that share of the pool at or below it.
  Duration percentile(double percent) const;

 private:
  std::vector<std::int64_t> buckets_;
  std::int64_t count_ = 0;
  double sum_ = 0;          // seconds
  double sum_squares_ = 0;  // seconds squared
  Duration least_{0};
  Duration greatest_{0};
};

}  // namespace sluice
