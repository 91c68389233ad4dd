// LiveStats: recent tokens per second and latencies, for the page. /metrics has the exact figures.
// Owner: its user. Threads: the event loop's. Cost: memory for the samples that it keeps;
// percentiles sort a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace sluice {

// The last samples of one quantity.
class RecentDurations {
 public:
  explicit RecentDurations(std::size_t kept = 1024) : kept_(kept) {}
  void add(Duration value);
  struct Percentiles {
    Duration p50{0};
    Duration p99{0};
  };
  std::optional<Percentiles> percentiles() const;

 private:
  std::size_t kept_;
  std::vector<Duration> samples_;  // a ring, once there are kept_
  std::size_t next_ = 0;           // in the ring
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
