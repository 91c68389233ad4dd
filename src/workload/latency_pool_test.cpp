#include "workload/latency_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The nearest rank, from the sorted durations.
Duration exact_percentile(const std::vector<Duration>& sorted, double percent) {
  const double rank = std::ceil(percent * static_cast<double>(sorted.size()) / 100 - 1e-9);
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

TEST(LatencyPool, AnEmptyPoolIsAllZero) {
  const LatencyPool pool;
  EXPECT_EQ(pool.count(), 0);
  EXPECT_EQ(pool.mean(), Duration(0));
  EXPECT_EQ(pool.deviation(), Duration(0));
  EXPECT_EQ(pool.least(), Duration(0));
  EXPECT_EQ(pool.greatest(), Duration(0));
  EXPECT_EQ(pool.percentile(99), Duration(0));
}

TEST(LatencyPool, SmallDurationsHaveACounterEach) {
  LatencyPool pool;
  for (int i = 1; i <= 2047; ++i) pool.add(nanoseconds(i));
  for (int percent = 0; percent <= 100; ++percent) {
    const auto rank = std::max(1, static_cast<int>(std::ceil(percent * 20.47 - 1e-9)));
    EXPECT_EQ(pool.percentile(percent), nanoseconds(rank)) << percent;
  }
}

TEST(LatencyPool, PercentilesAreWithinATenthOfAPercent) {
  // From nanoseconds to days, evenly in the logarithm.
  SplitMix64 random(11);
  LatencyPool pool;
  std::vector<Duration> all;
  for (int i = 0; i < 50'000; ++i) {
    const auto d = nanoseconds(static_cast<std::int64_t>(std::exp(random.uniform() * 33)));
    pool.add(d);
    all.push_back(d);
  }
  std::sort(all.begin(), all.end());
  for (const double percent : {0.0, 0.1, 1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto exact = static_cast<double>(exact_percentile(all, percent).count());
    EXPECT_NEAR(static_cast<double>(pool.percentile(percent).count()), exact, exact * 0.001)
        << percent;
  }
  EXPECT_EQ(pool.least(), all.front());
  EXPECT_EQ(pool.greatest(), all.back());
}

TEST(LatencyPool, EveryDurationFindsItsCounter) {
  // Both sides of every power of two, up to the greatest there is.
  for (int bit = 0; bit < 63; ++bit) {
    for (const int offset : {-1, 0, 1}) {
      const std::int64_t value = (std::int64_t{1} << bit) + offset;
      LatencyPool pool;
      pool.add(nanoseconds(value));
      pool.add(Duration::max());  // so that the percentile is not the greatest
      const auto found = static_cast<double>(pool.percentile(50).count());
      EXPECT_NEAR(found, static_cast<double>(value), static_cast<double>(value) * 0.001) << value;
    }
  }
  LatencyPool pool;
  pool.add(Duration::max());
  EXPECT_EQ(pool.percentile(50), Duration::max());
}

TEST(LatencyPool, MeanAndDeviationAreExact) {
  LatencyPool pool;
  pool.add(milliseconds(2), 3);
  pool.add(milliseconds(6));
  EXPECT_EQ(pool.count(), 4);
  EXPECT_EQ(pool.mean(), milliseconds(3));
  // Squares of the distances: 1, 1, 1, 9.
  EXPECT_NEAR(to_milliseconds(pool.deviation()), std::sqrt(3.0), 1e-6);
}

TEST(LatencyPool, EqualDurationsDeviateByNothing) {
  LatencyPool pool;
  pool.add(nanoseconds(123'456'789), 1'000'003);
  EXPECT_EQ(pool.mean(), nanoseconds(123'456'789));
  EXPECT_LT(pool.deviation(), nanoseconds(10'000));
  EXPECT_EQ(pool.percentile(50), nanoseconds(123'456'789));
}

TEST(LatencyPool, NegativeDurationsCountAsZero) {
  LatencyPool pool;
  pool.add(milliseconds(-5));
  EXPECT_EQ(pool.count(), 1);
  EXPECT_EQ(pool.least(), Duration(0));
  EXPECT_EQ(pool.mean(), Duration(0));
}

TEST(LatencyPool, NoTimesAddNothing) {
  LatencyPool pool;
  pool.add(milliseconds(5), 0);
  EXPECT_EQ(pool.count(), 0);
  EXPECT_EQ(pool.greatest(), Duration(0));
}

TEST(LatencyPool, TheSmallestWithThatShareBelow) {
  LatencyPool pool;
  for (int i = 1; i <= 1000; ++i) pool.add(nanoseconds(i));
  EXPECT_EQ(pool.percentile(99.9), nanoseconds(999));
  EXPECT_EQ(pool.percentile(99.91), nanoseconds(1000));
  EXPECT_EQ(pool.percentile(50), nanoseconds(500));
  EXPECT_EQ(pool.percentile(0), nanoseconds(1));
}

}  // namespace
}  // namespace sluice
