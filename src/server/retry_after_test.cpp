#include "server/retry_after.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::seconds;

TEST(RetryAfter, OneSecondWhileNothingIsKnown) {
  RetryAfter retry;
  EXPECT_EQ(retry.refused(TimePoint{seconds(100)}), 1);
}

TEST(RetryAfter, FollowsTheRateAtWhichRequestsFinish) {
  RetryAfter retry;
  // One every five seconds.
  for (int i = 0; i < 10; ++i) retry.finished(TimePoint{seconds(5 * i)});
  const TimePoint now{seconds(50)};
  EXPECT_EQ(retry.refused(now), 5);
  EXPECT_EQ(retry.refused(now), 10);  // after the first
  retry.finished(now);
  EXPECT_EQ(retry.refused(TimePoint{seconds(55)}), 10);
}

// Ten requests a second finish; a client asks ten thousand times in the meantime.
TEST(RetryAfter, AFloodIsForgottenWithinTheLongestWait) {
  RetryAfter retry;
  const auto at = [](int tenths) { return TimePoint{std::chrono::milliseconds(100 * tenths)}; };
  for (int i = 0; i < 100; ++i) retry.finished(at(i));
  for (int i = 0; i < 10'000; ++i) EXPECT_LE(retry.refused(at(100)), 60);
  for (int i = 100; i < 100 + 60 * 10; ++i) retry.finished(at(i));
  EXPECT_LE(retry.refused(at(700)), 2);
}

TEST(RetryAfter, StaysBetweenOneAndSixtySeconds) {
  RetryAfter fast;
  for (int i = 0; i < 1000; ++i) fast.finished(TimePoint{std::chrono::milliseconds(i)});
  EXPECT_EQ(fast.refused(TimePoint{seconds(1)}), 1);
  RetryAfter slow;
  slow.finished(TimePoint{seconds(0)});
  slow.finished(TimePoint{seconds(1)});
  EXPECT_EQ(slow.refused(TimePoint{seconds(100'000)}), 60);
}

}  // namespace
}  // namespace sluice
