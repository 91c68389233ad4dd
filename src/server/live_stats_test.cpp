#include "server/live_stats.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LiveStats, PercentilesOfTheLastSamples) {
  RecentDurations durations;
  EXPECT_FALSE(durations.percentiles());
  durations.add(milliseconds(7));
  EXPECT_EQ(durations.percentiles()->p50, milliseconds(7));
  EXPECT_EQ(durations.percentiles()->p99, milliseconds(7));
  // Only the last 1024 count.
  for (int i = 0; i < 3000; ++i) durations.add(seconds(100));
  for (int i = 1; i <= 1024; ++i) durations.add(milliseconds(i));
  EXPECT_EQ(durations.percentiles()->p50, milliseconds(512));
  EXPECT_EQ(durations.percentiles()->p99, milliseconds(1013));
}

TEST(LiveStats, RatesCoverTheLastFiveWholeSeconds) {
  RecentRate rate;
  EXPECT_EQ(rate.per_second(TimePoint{seconds(100)}), 0);
  for (int second = 100; second < 110; ++second) rate.add(TimePoint{seconds(second)}, 50);
  EXPECT_DOUBLE_EQ(rate.per_second(TimePoint{milliseconds(110'500)}), 50);
  EXPECT_DOUBLE_EQ(rate.per_second(TimePoint{milliseconds(113'500)}), 20);
  EXPECT_DOUBLE_EQ(rate.per_second(TimePoint{seconds(120)}), 0);
}

}  // namespace
}  // namespace sluice
