#include "server/live_stats.h"

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

std::int64_t second_of(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.since_start).count();
}

}  // namespace

void RecentDurations::add(Duration value) { samples_[count_++ % kSamples] = value; }

std::optional<RecentDurations::Percentiles> RecentDurations::percentiles() const {
  const std::size_t kept = std::min(count_, kSamples);
  if (kept == 0) return std::nullopt;
  std::vector<Duration> sorted(samples_.begin(),
                               samples_.begin() + static_cast<std::ptrdiff_t>(kept));
  std::sort(sorted.begin(), sorted.end());
  return Percentiles{sorted[(kept - 1) / 2], sorted[(kept - 1) * 99 / 100]};
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
