#include "lending/pressure_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLeast = 64 * kMiB;
constexpr std::int64_t kMost = 1024 * kMiB;

// A machine of 2 GiB: KV memory, which follows the cap, and others.
class PressurePolicyTest : public testing::Test {
 protected:
  void look(int times = 1) {
    for (int i = 0; i < times; ++i) {
      ms_ += 100;
      policy_.look(TimePoint{} + std::chrono::milliseconds(ms_),
                   {.headroom = 2048 * kMiB - others_ - backed_, .stalled = stalled_}, backed_);
      backed_ = std::min(wanted_, policy_.cap().value_or(kMost));
    }
  }

  PressurePolicy policy_{kLeast, kMost};
  int ms_ = 0;
  std::int64_t others_ = 0;
  std::int64_t wanted_ = kMost;
  std::int64_t backed_ = kMost;
  Duration stalled_{0};
};

TEST_F(PressurePolicyTest, WithMemoryThereIsNoCap) {
  look(100);
  EXPECT_FALSE(policy_.cap());
}

TEST_F(PressurePolicyTest, GivesWayToOthersAPartAtATimeAndGrowsBack) {
  look();
  others_ = 1500 * kMiB;  // 476 MiB above what there is
  std::int64_t before = backed_;
  while (2048 * kMiB - others_ - backed_ < PressurePolicy::kLow) {
    look();
    ASSERT_LT(backed_, before);
    ASSERT_GE(backed_, before - before / 8);
    before = backed_;
    ASSERT_LT(ms_, 3000);
  }
  EXPECT_GT(backed_, 450 * kMiB);  // no more than was needed
  // Between the thresholds it stays.
  look(100);
  EXPECT_EQ(backed_, before);
  others_ = 0;
  look();
  EXPECT_GT(backed_, before);
  EXPECT_LE(backed_, before + before / 8);
  look(60);
  EXPECT_FALSE(policy_.cap());
  EXPECT_EQ(backed_, kMost);
}

TEST_F(PressurePolicyTest, NeverTakesWhatAcceptedRequestsMayNeed) {
  others_ = 4096 * kMiB;
  look(100);
  EXPECT_EQ(backed_, kLeast);
}

TEST_F(PressurePolicyTest, StallsCountAlthoughMemoryIsLeft) {
  look();
  for (int i = 0; i < 5; ++i) {
    stalled_ += std::chrono::milliseconds(30);  // of 100
    look();
  }
  const std::int64_t low = backed_;
  EXPECT_LT(low, kMost - 4 * PressurePolicy::kStep);
  // Little is no pressure.
  for (int i = 0; i < 60; ++i) {
    stalled_ += std::chrono::milliseconds(2);
    look();
  }
  EXPECT_GT(backed_, low);
}

TEST_F(PressurePolicyTest, GrowthDoesNotCauseThePressureAnew) {
  others_ = 1200 * kMiB;
  look(200);
  const std::int64_t settled = backed_;
  others_ = 1100 * kMiB;  // a little is free again
  int turns = 0;
  bool grew = false;
  for (int i = 0; i < 400; ++i) {
    const std::int64_t before = backed_;
    look();
    const bool grows = backed_ > before;
    if (backed_ != before && grows != grew) {
      ++turns;
      grew = grows;
    }
  }
  EXPECT_GT(backed_, settled);
  EXPECT_LE(turns, 1);
}

}  // namespace
}  // namespace sluice
