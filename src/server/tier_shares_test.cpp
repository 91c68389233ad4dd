#include "server/tier_shares.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(TierShares, DividesHitsByTheBlocksThatWereLoadedForThem) {
  TierShares shares;
  const auto note = [&](std::int64_t ram, std::int64_t disk, std::int64_t tokens, double seconds) {
    shares.note({true, {0, ram}, {0, disk}}, tokens, seconds);
  };
  note(0, 0, 0, 0);
  note(3, 0, 0, 0);   // loads before their hit
  note(3, 1, 64, 0);  // three from RAM, one from the disk
  EXPECT_DOUBLE_EQ(shares.fast().hit_tokens, 48);
  EXPECT_DOUBLE_EQ(shares.slow().hit_tokens, 16);
  note(3, 1, 64, 8.0);  // the price came later
  EXPECT_DOUBLE_EQ(shares.fast().saved_seconds, 6);
  EXPECT_DOUBLE_EQ(shares.slow().saved_seconds, 2);
  note(3, 3, 96, 10.0);
  EXPECT_DOUBLE_EQ(shares.fast().hit_tokens, 48);
  EXPECT_DOUBLE_EQ(shares.slow().hit_tokens, 48);
  EXPECT_DOUBLE_EQ(shares.slow().saved_seconds, 4);
}

}  // namespace
}  // namespace sluice
