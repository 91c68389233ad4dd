#include "base/work_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace sluice {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class WorkPaceTest : public testing::Test {
 protected:
  // Works so long, then may rest.
  Status work(Duration time) {
    worked_.advance(time);
    return pace_.rest();
  }

  ManualClock worked_;
  bool beside_ = true;
  bool stopped_ = false;
  std::vector<Duration> rests_;
  WorkPace pace_{{.piece = milliseconds(1), .rests = 20},
                 worked_,
                 [this] { return beside_; },
                 [this](Duration time) {
                   rests_.push_back(time);
                   return !stopped_;
                 }};
};

TEST_F(WorkPaceTest, RestsAfterEachPieceInProportionToItsWork) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(work(microseconds(300)));
  EXPECT_EQ(rests_, std::vector<Duration>{microseconds(20 * 1200)});
  ASSERT_TRUE(work(milliseconds(3)));  // a part that could not be cut
  EXPECT_EQ(rests_.back(), milliseconds(60));
  ASSERT_TRUE(work(microseconds(999)));
  EXPECT_EQ(rests_.size(), 2U);
}

TEST_F(WorkPaceTest, DoesNotRestWhileNoOtherThreadComputes) {
  beside_ = false;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(work(milliseconds(1)));
  EXPECT_EQ(rests_, std::vector<Duration>(10, Duration{0}));
  beside_ = true;  // only the work from here on counts
  ASSERT_TRUE(work(milliseconds(1)));
  EXPECT_EQ(rests_.back(), milliseconds(20));
}

TEST_F(WorkPaceTest, EndsTheWorkWhenItIsStoppedAlsoWithoutARest) {
  stopped_ = true;
  const Status status = work(milliseconds(2));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  beside_ = false;
  EXPECT_FALSE(pace_.check()());
}

TEST(PauseTest, IsEndedByStopNowAndLater) {
  Pause pause;
  EXPECT_TRUE(pause.wait(Duration{0}));
  EXPECT_TRUE(pause.wait(microseconds(1)));
  bool went_on = true;
  std::thread waiting([&] { went_on = pause.wait(hours(100)); });
  pause.stop();
  pause.stop();
  waiting.join();
  EXPECT_FALSE(went_on);
  EXPECT_FALSE(pause.wait(Duration{0}));
}

TEST(ThreadCpuClockTest, CountsTheWorkOfItsThreadOnly) {
  const ThreadCpuClock clock;
  const TimePoint before = clock.now();
  Duration other{0};
  std::thread worker([&] {
    while (clock.now().since_start < milliseconds(20)) {
    }
    other = clock.now().since_start;
  });
  worker.join();
  EXPECT_GE(other, milliseconds(20));
  EXPECT_LT(clock.now() - before, other);  // it has only waited
}

}  // namespace
}  // namespace sluice
