#include "lending/lending_policy.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TimePoint at(int ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

TEST(LendingPolicyTest, WantsAsMuchAsItHasWhenMemoryIsShort) {
  LendingPolicy policy(64 * kMiB, 1024 * kMiB);
  EXPECT_EQ(policy.decide(at(0), {.limit = 64 * kMiB, .used = 60 * kMiB}).want, 64 * kMiB);
  EXPECT_EQ(policy.decide(at(1), {.limit = 64 * kMiB, .used = 0, .waiting = 1}).want, 64 * kMiB);
  EXPECT_EQ(policy.decide(at(2), {.limit = 1000 * kMiB, .used = 999 * kMiB}).want, 24 * kMiB);
  EXPECT_EQ(policy.decide(at(3), {.limit = 1024 * kMiB, .used = 1024 * kMiB}).want, 0);
}

TEST(LendingPolicyTest, AsksForAStepAtLeast) {
  LendingPolicy policy(kMiB, 1024 * kMiB);
  EXPECT_EQ(policy.decide(at(0), {.limit = kMiB, .used = kMiB}).want, LendingPolicy::kSmallestStep);
}

// More memory admits no further sequence: the slots limit it.
TEST(LendingPolicyTest, WantsNothingWhenSlotsAreFull) {
  LendingPolicy policy(64 * kMiB, 1024 * kMiB);
  const LendingLoad load{.limit = 64 * kMiB, .used = 10 * kMiB, .waiting = 5, .slots_full = true};
  EXPECT_EQ(policy.decide(at(0), load).want, 0);
  EXPECT_EQ(policy.decide(at(1000), load).spare, 0);
}

TEST(LendingPolicyTest, OffersWhenCalmForAWhile) {
  LendingPolicy policy(64 * kMiB, 1024 * kMiB);
  const LendingLoad calm{.limit = 1024 * kMiB, .used = 100 * kMiB};
  EXPECT_EQ(policy.decide(at(0), calm).spare, 0);
  EXPECT_EQ(policy.decide(at(499), calm).spare, 0);
  EXPECT_EQ(policy.decide(at(500), calm).spare, 824 * kMiB);
  EXPECT_EQ(policy.decide(at(501), {.limit = 1024 * kMiB}).spare, 960 * kMiB);
  // One busy moment begins the time anew.
  EXPECT_EQ(policy.decide(at(502), {.limit = 1024 * kMiB, .used = 600 * kMiB}).spare, 0);
  EXPECT_EQ(policy.decide(at(503), calm).spare, 0);
  EXPECT_EQ(policy.decide(at(1003), calm).spare, 824 * kMiB);
}

// Between the thresholds it neither wants nor offers, so memory does not move back and forth.
TEST(LendingPolicyTest, DoesNothingBetweenTheThresholds) {
  LendingPolicy policy(64 * kMiB, 1024 * kMiB);
  for (int ms = 0; ms < 2000; ms += 100) {
    const LendingWish wish = policy.decide(at(ms), {.limit = 800 * kMiB, .used = 500 * kMiB});
    EXPECT_EQ(wish.want, 0);
    EXPECT_EQ(wish.spare, 0);
  }
}

}  // namespace
}  // namespace sluice
