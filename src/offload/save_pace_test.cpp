// When saves may begin, by clocks that only the test moves.
#include "offload/save_pace.h"

#include <gtest/gtest.h>

#include <optional>

namespace sluice {
namespace {

constexpr Duration kTurn = SavePace::kTurn;
constexpr Duration kTick{1};
constexpr int kRests = 8;

class SavePaceTest : public testing::Test {
 protected:
  // One save of so much CPU time, which `left` others wait behind.
  void save(Duration cpu_time, std::size_t left = 1) {
    const SavePace::Save save = pace_.begin(left);
    cpu_.advance(cpu_time);
    pace_.end(save);
  }

  ManualClock cpu_;
  ManualClock time_;
  SavePace pace_{kRests, {cpu_, time_}};
};

TEST_F(SavePaceTest, ARestIsAMultipleOfTheCpuTimeOfItsTurn) {
  save(kTurn + kTick);
  EXPECT_EQ(pace_.until_next(1), kRests * (kTurn + kTick));
  time_.advance(kRests * (kTurn + kTick) - kTick);
  EXPECT_FALSE(pace_.may_begin(1));
  EXPECT_EQ(pace_.until_next(1), kTick);
  time_.advance(kTick);
  EXPECT_TRUE(pace_.may_begin(1));
  EXPECT_EQ(pace_.until_next(1), Duration{0});
}

TEST_F(SavePaceTest, ShortSavesRestTogether) {
  for (int i = 0; i < 3; ++i) {
    save(kTurn / 4);
    EXPECT_TRUE(pace_.may_begin(1)) << i;
  }
  save(kTurn / 4);
  EXPECT_FALSE(pace_.may_begin(1));
  EXPECT_EQ(pace_.until_next(1), kRests * kTurn);
}

TEST_F(SavePaceTest, ARestBeginsATurn) {
  save(kTurn);
  time_.advance(kRests * kTurn);
  save(kTurn - kTick);
  EXPECT_TRUE(pace_.may_begin(1));
  save(kTick);
  EXPECT_EQ(pace_.until_next(1), kRests * kTurn);
}

TEST_F(SavePaceTest, TimeWithoutCpuTimeDoesNotCount) {
  const SavePace::Save save = pace_.begin(1);
  time_.advance(kTurn * 100);
  cpu_.advance(kTurn - kTick);
  pace_.end(save);
  EXPECT_TRUE(pace_.may_begin(1));
}

TEST_F(SavePaceTest, OneSaveAtATime) {
  const SavePace::Save save = pace_.begin(1);
  EXPECT_FALSE(pace_.may_begin(1));
  EXPECT_EQ(pace_.until_next(1), std::nullopt);  // its thread looks for the next one
  EXPECT_FALSE(pace_.wakes(1));
  pace_.end(save);
  EXPECT_TRUE(pace_.may_begin(1));
}

TEST_F(SavePaceTest, OnlyNewsEndsAWaitWithoutSaves) {
  EXPECT_FALSE(pace_.may_begin(0));
  EXPECT_EQ(pace_.until_next(0), std::nullopt);
}

TEST_F(SavePaceTest, TheFirstSaveOfARestWakesAThreadThatThenWaitsForAllOthers) {
  save(kTurn, 0);
  EXPECT_TRUE(pace_.wakes(1));
  EXPECT_FALSE(pace_.wakes(2));
}

TEST_F(SavePaceTest, UrgentSavesAndThoseThatWaitWithThemDoNotRest) {
  save(kTurn);
  EXPECT_TRUE(pace_.hurry());
  EXPECT_FALSE(pace_.hurry());
  EXPECT_TRUE(pace_.may_begin(2));
  const SavePace::Save first = pace_.begin(1);
  EXPECT_TRUE(pace_.may_begin(1));  // beside the first
  const SavePace::Save second = pace_.begin(0);
  cpu_.advance(kTurn * 100);
  pace_.end(first);
  pace_.end(second);
  // The next one waits for the rest that began before.
  EXPECT_EQ(pace_.until_next(1), kRests * kTurn);
  time_.advance(kRests * kTurn);
  EXPECT_TRUE(pace_.may_begin(1));
}

TEST_F(SavePaceTest, WithoutRestsSavesAlwaysBegin) {
  SavePace pace{0, {cpu_, time_}};
  const SavePace::Save first = pace.begin(5);
  EXPECT_TRUE(pace.may_begin(5));
  const SavePace::Save second = pace.begin(4);
  cpu_.advance(kTurn * 100);
  pace.end(first);
  pace.end(second);
  EXPECT_TRUE(pace.may_begin(4));
}

}  // namespace
}  // namespace sluice
