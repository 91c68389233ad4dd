#include "function/process_times.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sluice {
namespace {

using std::chrono_literals::operator""s;

TEST(ProcessTimesTest, SilenceCountsWhileThereAreRequests) {
  ProcessTimes times(TimePoint(10s));
  times.look(TimePoint(11s), false, 0s);
  times.look(TimePoint(12s), true, 0s);
  EXPECT_EQ(times.silence(), 0s) << "the requests have come just now";
  times.look(TimePoint(13s), true, 0s);
  times.look(TimePoint(14s), true, 0s);
  EXPECT_EQ(times.silence(), 2s);
  times.heard();
  times.look(TimePoint(15s), true, 0s);
  EXPECT_EQ(times.silence(), 0s);
  times.look(TimePoint(16s), false, 0s);
  times.look(TimePoint(17s), false, 0s);
  EXPECT_EQ(times.silence(), 0s);
  EXPECT_EQ(times.since_start(), 7s);
}

TEST(ProcessTimesTest, WaitingForATurnIsNoSilence) {
  ProcessTimes times(TimePoint(0s));
  times.look(TimePoint(1s), true, 5s);
  times.look(TimePoint(2s), true, 6s);
  times.look(TimePoint(4s), true, 7s);
  EXPECT_EQ(times.silence(), 1s);
}

TEST(ProcessTimesTest, APauseOfTheMachineDoesNotCount) {
  ProcessTimes times(TimePoint(0s));
  times.look(TimePoint(1s), true, 0s);
  times.look(TimePoint(200s), true, 0s);
  EXPECT_EQ(times.silence(), ProcessTimes::kLongestLook);
  EXPECT_EQ(times.since_start(), 1s + ProcessTimes::kLongestLook);
  times.look(TimePoint(500s), true, 300s);
  EXPECT_EQ(times.silence(), ProcessTimes::kLongestLook) << "it waited during the pause";
}

}  // namespace
}  // namespace sluice
