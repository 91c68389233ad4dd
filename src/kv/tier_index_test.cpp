#include "kv/tier_index.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

Hash128 tier_name(std::uint64_t i) { return {i, i * 0x9E3779B97F4A7C15ULL}; }

std::int32_t save(TierIndex& tier, std::uint64_t name) {
  const std::int32_t page = tier.begin_save();
  tier.end_save(page, tier_name(name), 0, true);
  tier.check_integrity();
  return page;
}

TEST(TierIndex, ReusesThePageThatWasUsedLeastRecently) {
  TierIndex tier(3);
  for (std::uint64_t i = 1; i <= 3; ++i) save(tier, i);
  EXPECT_TRUE(tier.touch(tier_name(1), 0));
  const std::int32_t second = tier.find(tier_name(2), 0);
  EXPECT_EQ(save(tier, 4), second);
  EXPECT_EQ(tier.find(tier_name(2), 0), TierIndex::kNoPage);
  // An empty page goes first.
  const std::int32_t first = tier.find(tier_name(1), 0);
  tier.forget(tier_name(1), 0);
  EXPECT_EQ(save(tier, 5), first);
  EXPECT_EQ(tier.num_saved(), 3);
}

// The same operations with both orders; only the victim differs.
TEST(TierIndex, BySecondsAUsedPageOutlivesNewerOnesUsedOnce) {
  TierIndex tier(3, {.by = TierEviction::kSeconds});
  for (std::uint64_t i = 1; i <= 3; ++i) save(tier, i);
  EXPECT_TRUE(tier.touch(tier_name(1), 0));
  EXPECT_TRUE(tier.touch(tier_name(1), 0));
  save(tier, 4);
  save(tier, 5);
  save(tier, 6);
  EXPECT_NE(tier.find(tier_name(1), 0), TierIndex::kNoPage);
  EXPECT_EQ(tier.find(tier_name(4), 0), TierIndex::kNoPage);
  // An empty page goes first, pages under way and protected ones never.
  const std::int32_t first = tier.find(tier_name(1), 0);
  tier.forget(tier_name(1), 0);
  EXPECT_EQ(save(tier, 7), first);
  tier.protect(tier_name(7), 0);
  tier.begin_load(tier.find(tier_name(5), 0));
  tier.check_integrity();
  const std::int32_t sixth = tier.find(tier_name(6), 0);
  EXPECT_EQ(tier.begin_save(), sixth);
  EXPECT_EQ(tier.begin_save(), TierIndex::kNoPage);
  tier.unprotect(tier_name(7), 0);
  EXPECT_EQ(tier.begin_save(), first);
  tier.check_integrity();
}

// Otherwise a tier of one page would never take another block.
TEST(TierIndex, AtMostHalfOfThePagesAreProtected) {
  for (const std::int32_t pages : {1, 2, 3, 4, 5}) {
    TierIndex tier(pages);
    for (std::int32_t i = 1; i <= pages; ++i) {
      save(tier, static_cast<std::uint64_t>(i));
      tier.protect(tier_name(static_cast<std::uint64_t>(i)), 0);
    }
    EXPECT_EQ(tier.num_protected(), pages / 2);
    EXPECT_NE(tier.begin_save(), TierIndex::kNoPage);
  }
}

TEST(TierIndex, APageUnderWayIsNotTaken) {
  TierIndex tier(2);
  const std::int32_t page = save(tier, 1);
  tier.begin_load(page);
  const std::int32_t other = tier.begin_save();
  EXPECT_NE(other, page);
  EXPECT_EQ(tier.begin_save(), TierIndex::kNoPage);
  EXPECT_EQ(tier.find(tier_name(2), 0), TierIndex::kNoPage);  // not before its end
  tier.end_save(other, tier_name(2), 0, true);
  EXPECT_EQ(tier.find(tier_name(2), 0), other);
  EXPECT_TRUE(tier.end_load(page, tier_name(1), 0, PageLoadEnd::kLoaded));
  tier.check_integrity();
}

TEST(TierIndex, DoubtIsAMiss) {
  TierIndex tier(3);
  const std::int32_t page = save(tier, 1);
  tier.begin_load(page);
  EXPECT_FALSE(tier.end_load(page, tier_name(1), 0, PageLoadEnd::kDamaged));
  EXPECT_EQ(tier.find(tier_name(1), 0), TierIndex::kNoPage);
  tier.end_save(tier.begin_save(), tier_name(2), 0, false);
  EXPECT_EQ(tier.find(tier_name(2), 0), TierIndex::kNoPage);
  // Forgotten while it is loaded: the bytes that come are not used.
  const std::int32_t third = save(tier, 3);
  tier.begin_load(third);
  tier.forget(tier_name(3), 0);
  EXPECT_FALSE(tier.end_load(third, tier_name(3), 0, PageLoadEnd::kLoaded));
  tier.check_integrity();
  EXPECT_EQ(tier.num_saved() + tier.num_under_way(), 0);
}

TEST(TierIndex, APageThatCannotBeReadNowStays) {
  TierIndex tier(2);
  const std::int32_t page = save(tier, 1);
  for (int i = 0; i < 2; ++i) {
    tier.begin_load(page);
    EXPECT_FALSE(tier.end_load(page, tier_name(1), 0, PageLoadEnd::kUnreadable));
    EXPECT_EQ(tier.find(tier_name(1), 0), page);
    tier.check_integrity();
  }
  tier.begin_load(page);
  EXPECT_TRUE(tier.end_load(page, tier_name(1), 0, PageLoadEnd::kLoaded));
}

TEST(TierIndex, TakesOverWhatWasStored) {
  TierIndex tier(2);
  EXPECT_TRUE(tier.restore(1, tier_name(1), 0));
  EXPECT_TRUE(tier.restore(0, tier_name(2), 0));
  EXPECT_EQ(tier.find(tier_name(1), 0), 1);
  EXPECT_EQ(save(tier, 3), 1);  // the oldest
  TierIndex twice(2);
  EXPECT_TRUE(twice.restore(0, tier_name(1), 0));
  EXPECT_FALSE(twice.restore(1, tier_name(1), 0));
  twice.check_integrity();
}

}  // namespace
}  // namespace sluice
