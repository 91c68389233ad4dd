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

}  // namespace
}  // namespace sluice
