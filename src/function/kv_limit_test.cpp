#include "function/kv_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TimePoint at(int ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

class KvLimitTest : public testing::Test {
 protected:
  KvLimit limit_{{.block_bytes = kMiB, .first = 16 * kMiB, .beside = 100 * kMiB}};
};

TEST_F(KvLimitTest, AProcessIsToldOneLimitAtATime) {
  limit_.start();
  EXPECT_EQ(limit_.next(at(0)), std::nullopt);
  limit_.set(64 * kMiB);
  EXPECT_EQ(limit_.next(at(0)), 64 * kMiB);
  limit_.set(32 * kMiB);
  EXPECT_EQ(limit_.next(at(1)), std::nullopt);
  limit_.shown(16, 10);  // from before
  EXPECT_EQ(limit_.next(at(2)), std::nullopt);
  limit_.shown(64, 10);
  EXPECT_EQ(limit_.next(at(3)), 32 * kMiB);
}

TEST_F(KvLimitTest, ItMayHoldTheOldLimitUntilItShowsTheNewOne) {
  EXPECT_EQ(limit_.held(), 0);
  limit_.start();
  EXPECT_EQ(limit_.held(), 16 * kMiB);
  limit_.set(64 * kMiB);
  limit_.next(at(0));
  limit_.shown(64, 16);
  EXPECT_EQ(limit_.held(), 16 * kMiB);
  limit_.set(32 * kMiB);
  EXPECT_EQ(limit_.held(), 64 * kMiB);
  limit_.next(at(1));
  limit_.shown(64, 20);
  EXPECT_EQ(limit_.held(), 64 * kMiB);
  limit_.shown(32, 40);  // it gives memory back
  EXPECT_EQ(limit_.held(), 40 * kMiB);
  limit_.shown(32, 30);
  EXPECT_EQ(limit_.held(), 30 * kMiB);
  limit_.end();
  EXPECT_EQ(limit_.held(), 0);
  EXPECT_EQ(limit_.wanted(), 16 * kMiB);  // of the next process
}

TEST_F(KvLimitTest, AProcessThatDoesNotShowItsLimitIsLate) {
  limit_.start();
  limit_.set(64 * kMiB);
  limit_.next(at(0));
  limit_.shown(16, 16);
  EXPECT_FALSE(limit_.late(at(5000)));
  EXPECT_THAT(limit_.late(at(5001)).value_or(""), HasSubstr("its limit of 64 MiB"));
  limit_.shown(64, 16);
  EXPECT_FALSE(limit_.late(at(5001)));
}

TEST_F(KvLimitTest, SoIsOneThatShowsItAndKeepsTheMemory) {
  limit_.start();
  limit_.set(64 * kMiB);
  limit_.next(at(0));
  limit_.shown(64, 64);
  limit_.set(16 * kMiB);
  limit_.next(at(1));
  limit_.shown(16, 64);
  EXPECT_TRUE(limit_.late(at(5002)));
  limit_.shown(16, 16);
  EXPECT_FALSE(limit_.late(at(5002)));
}

TEST_F(KvLimitTest, SoIsOneWhoseMemoryIsNotWhatItSays) {
  limit_.start();
  limit_.note_own_memory(at(0), 116 * kMiB);
  EXPECT_FALSE(limit_.late(at(6000)));
  limit_.note_own_memory(at(0), 117 * kMiB);
  EXPECT_FALSE(limit_.late(at(5000)));
  EXPECT_THAT(limit_.late(at(5001)).value_or(""), HasSubstr("100 MiB for all else"));
  limit_.note_own_memory(at(5002), 116 * kMiB);
  EXPECT_FALSE(limit_.late(at(9000)));
}

// No claim makes the server keep more for it than it was allowed.
TEST_F(KvLimitTest, AClaimIsBoundedByWhatWasAllowed) {
  limit_.start();
  limit_.shown(16, 2'000'000'000);
  EXPECT_EQ(limit_.held(), 16 * kMiB);
  limit_.shown(16, -5);
  EXPECT_EQ(limit_.held(), 0);
}

// The process counts blocks, so it would show nothing new.
TEST_F(KvLimitTest, ALimitOfAsManyBlocksIsNotSent) {
  limit_.start();
  limit_.set(16 * kMiB + 5);
  EXPECT_EQ(limit_.next(at(0)), std::nullopt);
  EXPECT_FALSE(limit_.late(at(60'000)));
}

TEST_F(KvLimitTest, WithoutBlocksLimitsGoAtOnceAndStay) {
  KvLimit plain{{}};
  plain.start();
  plain.set(5);
  EXPECT_EQ(plain.next(at(0)), 5);
  plain.set(0);
  EXPECT_EQ(plain.next(at(0)), 0);
  plain.set(7);
  plain.end();
  plain.start();
  EXPECT_EQ(plain.next(at(1)), 7);
  EXPECT_EQ(plain.held(), 0);
  EXPECT_FALSE(plain.late(at(60'000)));
}

}  // namespace
}  // namespace sluice
