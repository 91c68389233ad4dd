#include "engine/startup_timeline.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(StartupTimeline, OneLineTellsEachSpanAndHowFastItCopied) {
  ManualClock clock;
  StartupTimeline timeline(clock);
  clock.advance(std::chrono::microseconds(1500));
  timeline.mark("config");
  clock.advance(std::chrono::milliseconds(500));
  timeline.mark("map weights", std::uint64_t{8} << 30);
  EXPECT_EQ(timeline.line(),
            "start 501.5 ms: config 1.5, map weights 500.0 (8192.0 MiB, 17.2 GB/s)");
  EXPECT_EQ(timeline.spans().size(), 2U);
}

TEST(StartupTimeline, SpansOfOtherThreadsHaveABeginAndDoNotAddUp) {
  ManualClock clock;
  StartupTimeline timeline(clock);
  clock.advance(std::chrono::milliseconds(1));
  const TimePoint begin = clock.now();
  timeline.mark("config");
  clock.advance(std::chrono::milliseconds(30));
  timeline.add_beside("tokenizer JSON", begin, clock.now());
  timeline.mark("map weights");
  EXPECT_EQ(timeline.line(),
            "start 31.0 ms: config 1.0, map weights 30.0; beside: tokenizer JSON 30.0");
  ASSERT_EQ(timeline.spans().size(), 3U);
  EXPECT_EQ(timeline.spans()[1].begin, std::chrono::milliseconds(1));
  EXPECT_TRUE(timeline.spans()[1].beside);
  EXPECT_EQ(timeline.spans()[2].begin, std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace sluice
