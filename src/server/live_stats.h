// LiveStats: recent tokens per second and latencies, for the page. /metrics has the exact figures.
// Owner: Generations. Threads: the event loop's. Cost: constant memory; percentiles sort a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace sluice {

// The last samples of one quantity.
class RecentDurations {
 public:
  void add(Duration value);
  struct Percentiles {
    Duration p50{0};
    Duration p99{0};
  };
  std::optional<Percentiles> percentiles() const;

 private:
  static constexpr std::size_t kSamples = 1024;
  std::array<Duration, kSamples> samples_{};  // a ring
  std::size_t count_ = 0;                     // ever
};

// Events per second over the last kSeconds.
class RecentRate {
 public:
  void add(TimePoint now, std::int64_t count);
  double per_second(TimePoint now) const;

 private:
  static constexpr std::int64_t kSeconds = 5;
  struct Bucket {
    std::int64_t second = -1;
    std::int64_t count = 0;
  };
  std::array<Bucket, kSeconds + 1> buckets_{};  // a ring; the current second does not count
};

struct LiveStats {
  RecentRate prompt_tokens;
  RecentRate output_tokens;
  RecentDurations ttft;
  RecentDurations tbt;
};

}  // namespace sluice
