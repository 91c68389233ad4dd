#include "server/live_stats.h"

#include <algorithm>

namespace sluice {
namespace {

std::int64_t second_of(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.since_start).count();
}

}  // namespace

void RecentDurations::add(Duration value) {
  if (samples_.size() < kept_) {
    samples_.push_back(value);
    return;
  }
  samples_[next_] = value;
  next_ = (next_ + 1) % kept_;
}

std::optional<RecentDurations::Percentiles> RecentDurations::percentiles() const {
  if (samples_.empty()) return std::nullopt;
  std::vector<Duration> sorted = samples_;
  std::sort(sorted.begin(), sorted.end());
  return Percentiles{sorted[(sorted.size() - 1) / 2], sorted[(sorted.size() - 1) * 99 / 100]};
}

void RecentRate::add(TimePoint now, std::int64_t count) {
  const std::int64_t second = second_of(now);
  Bucket& bucket = buckets_[static_cast<std::size_t>(second) % buckets_.size()];
  if (bucket.second != second) bucket = {second, 0};
  bucket.count += count;
}

double RecentRate::per_second(TimePoint now) const {
  const std::int64_t second = second_of(now);
  std::int64_t sum = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.second < second && bucket.second >= second - kSeconds) sum += bucket.count;
  }
  return static_cast<double>(sum) / static_cast<double>(kSeconds);
}

}  // namespace sluice
