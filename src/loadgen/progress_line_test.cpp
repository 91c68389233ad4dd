#include "loadgen/progress_line.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ProgressLine, SaysWhatPeopleWaitFor) {
  LoadProgress progress;
  progress.elapsed = std::chrono::seconds(125);
  progress.total = 1000;
  progress.completed = 400;
  progress.failed = 12;
  progress.in_flight = 16;
  progress.output_tokens = 51250;
  progress.p99_ttft = std::chrono::milliseconds(120);
  progress.p99_tbt = std::chrono::microseconds(3400);
  EXPECT_EQ(progress_line(progress, true),
            "[########............] 412/1000  16 running  12 failed  3.2 req/s  410 tok/s  "
            "P99 TTFT 120 ms, TBT 3.4 ms  2:05");
  progress.p99_ttft = std::chrono::seconds(75);
  EXPECT_EQ(progress_line(progress, false).substr(0, 8), "412/1000");
  EXPECT_NE(progress_line(progress, false).find("TTFT 75.0 s"), std::string::npos);
}

TEST(ProgressLine, HasNothingToDivideByAtTheBeginning) {
  EXPECT_EQ(progress_line({}, true).substr(0, 30), "[....................] 0/0  0 ");
}

}  // namespace
}  // namespace sluice
