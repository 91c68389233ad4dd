// Pinned prefixes: KvManager::pin().
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kv/kv_manager.h"

namespace sluice {
namespace {

KvOptions pin_options(std::int32_t num_blocks, std::int32_t tier_pages = 0,
                      std::vector<std::int32_t> windows = {0}) {
  KvOptions o;
  o.block_size = 4;
  o.group_windows = std::move(windows);
  o.num_blocks = num_blocks;
  o.max_num_seqs = 4;
  o.max_model_len = 64;
  o.max_query_len = 64;
  o.watermark = 0;
  o.tier_pages = tier_pages;
  return o;
}

std::vector<Hash128> prefix_names(std::uint64_t first, std::uint64_t count) {
  std::vector<Hash128> all;
  for (std::uint64_t i = first; i < first + count; ++i) all.push_back({i, i << 32 | i});
  return all;
}

class KvPins : public ::testing::Test {
 protected:
  std::optional<std::int32_t> admit(KvManager& kv, std::int32_t slot, std::int32_t tokens,
                                    const std::vector<Hash128>& names) {
    const auto cached = kv.admit(slot, names, tokens, {}, changes_);
    kv.check_integrity();
    return cached;
  }
  // A sequence of full blocks and one more token runs in slot 0; returns its cached tokens.
  std::int32_t run(KvManager& kv, const std::vector<Hash128>& names) {
    const std::int32_t tokens = 4 * static_cast<std::int32_t>(names.size()) + 1;
    const auto cached = admit(kv, 0, tokens, names);
    EXPECT_TRUE(cached.has_value());
    if (!cached) return -1;
    EXPECT_TRUE(kv.extend(0, *cached, tokens - *cached, changes_));
    kv.publish(0, names, tokens);
    kv.check_integrity();
    kv.release(0);
    kv.check_integrity();
    return *cached;
  }
  // Other sequences use every block that they can take.
  void fill(KvManager& kv) {
    for (int i = 0; i < 20; ++i) {
      const auto blocks =
          static_cast<std::uint64_t>(kv.num_available_blocks() / kv.num_groups() - 1);
      run(kv, prefix_names(next_, blocks));
      next_ += blocks;
    }
  }
  // Every save that waits ends well.
  static std::int32_t save_all(KvManager& kv) {
    std::int32_t saved = 0;
    while (const auto block = kv.begin_save()) {
      kv.check_integrity();
      kv.end_save(*block, true);
      kv.check_integrity();
      ++saved;
    }
    return saved;
  }

  std::vector<BlockTableUpdate> updates_;
  std::vector<std::int32_t> ids_;
  std::vector<BlockCopy> copies_;
  BlockChanges changes_{updates_, ids_, copies_};
  std::uint64_t next_ = 1000;
  const std::vector<Hash128> prefix_ = prefix_names(1, 3);
};

TEST_F(KvPins, OtherSequencesDoNotEvictAPinnedPrefix) {
  for (const bool before : {false, true}) {  // pinned before it is computed, or after
    KvManager kv(pin_options(13));
    if (before) kv.pin(prefix_);
    EXPECT_EQ(run(kv, prefix_), 0);
    if (!before) kv.pin(prefix_);
    kv.check_integrity();
    EXPECT_EQ(kv.num_pinned_blocks(), 3);
    EXPECT_EQ(kv.count_blocks(prefix_).in_memory, 3);
    fill(kv);
    EXPECT_EQ(run(kv, prefix_), 12);
    kv.unpin(prefix_);
    kv.check_integrity();
    EXPECT_EQ(kv.num_used_blocks(), 0);
    fill(kv);
    EXPECT_EQ(run(kv, prefix_), 0);
  }
}

TEST_F(KvPins, AnUnpinnedPrefixLosesItsEndFirst) {
  KvManager kv(pin_options(7));
  kv.pin(prefix_);
  run(kv, prefix_);
  kv.unpin(prefix_);
  // Three of the six blocks have no names. The fourth block that is taken is the last of the
  // prefix.
  run(kv, prefix_names(next_, 3));
  EXPECT_EQ(kv.match(prefix_, 12), 8);
}

TEST_F(KvPins, ANameStaysPinnedUntilTheLastPinEnds) {
  KvManager kv(pin_options(13));
  const std::vector<Hash128> longer = prefix_names(1, 5);  // begins with the prefix
  run(kv, longer);
  kv.pin(longer);
  kv.pin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 5);
  kv.unpin(longer);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  fill(kv);
  EXPECT_EQ(kv.match(longer, 20), 12);
  kv.unpin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 0);
}

TEST_F(KvPins, WarmHoldsAndPinsEndApart) {
  KvManager kv(pin_options(13));
  run(kv, prefix_);
  kv.hold(prefix_);
  kv.pin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  kv.end_warm_holds();
  kv.check_integrity();
  EXPECT_FALSE(kv.is_wanted(prefix_[0], 0));
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  kv.hold(prefix_);
  kv.unpin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  kv.end_warm_holds();
  kv.check_integrity();
  EXPECT_EQ(kv.num_used_blocks(), 0);
}

TEST_F(KvPins, ShortMemoryLetsGoOfThemUntilTheyAreUsedAgain) {
  KvManager kv(pin_options(7));
  run(kv, prefix_);
  kv.pin(prefix_);
  // A request that needs all of the memory comes first.
  const std::vector<Hash128> large = prefix_names(100, 5);
  EXPECT_EQ(admit(kv, 0, 21, large), std::nullopt);
  EXPECT_TRUE(kv.release_holds());
  EXPECT_FALSE(kv.release_holds());
  kv.check_integrity();
  EXPECT_EQ(run(kv, large), 0);
  EXPECT_EQ(kv.count_blocks(prefix_).all, 3);
  EXPECT_EQ(kv.count_blocks(prefix_).in_memory, 0);
  // The next use computes the prefix, and the pin holds it again.
  EXPECT_EQ(run(kv, prefix_), 0);
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  // Also a use that finds the blocks, which nothing holds, in memory.
  EXPECT_TRUE(kv.release_holds());
  EXPECT_EQ(run(kv, prefix_), 12);
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  fill(kv);
  EXPECT_EQ(run(kv, prefix_), 12);
}

TEST_F(KvPins, ASlidingGroupPinsWhatTheNextTokenSees) {
  KvManager kv(pin_options(20, 0, {0, 6}));
  run(kv, prefix_);
  kv.pin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.count_blocks(prefix_).all, 3 + 2);
  EXPECT_EQ(kv.num_pinned_blocks(), 3 + 2);
  fill(kv);
  EXPECT_EQ(kv.match(prefix_, 12), 12);
  kv.unpin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.num_used_blocks(), 0);
}

TEST_F(KvPins, WrongContentsLoseTheirNamesAlthoughPinned) {
  KvManager kv(pin_options(13));
  kv.pin(prefix_);
  ASSERT_EQ(admit(kv, 0, 13, prefix_), 0);
  ASSERT_TRUE(kv.extend(0, 0, 13, changes_));
  kv.publish(0, prefix_, 13);
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  kv.forget(0);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 0);
  kv.release(0);
  EXPECT_EQ(run(kv, prefix_), 0);  // computed again, and held again
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
}

TEST_F(KvPins, AreSavedToTheTierAlthoughTheyStayInMemory) {
  KvManager kv(pin_options(13, 8));
  kv.pin(prefix_);
  run(kv, prefix_);
  EXPECT_EQ(save_all(kv), 3);
  EXPECT_EQ(kv.tier().num_saved(), 3);
  EXPECT_EQ(kv.num_pinned_blocks(), 3);
  run(kv, prefix_);
  EXPECT_EQ(save_all(kv), 0);  // once
  const PinnedBlocks count = kv.count_blocks(prefix_);
  EXPECT_EQ(count.in_memory, 3);
  EXPECT_EQ(count.in_tier, 0);
}

TEST_F(KvPins, TheTierKeepsTheirPages) {
  KvManager kv(pin_options(13, 8));
  kv.pin(prefix_);
  run(kv, prefix_);
  save_all(kv);
  EXPECT_EQ(kv.tier().num_protected(), 3);
  kv.release_holds();  // from here on they are in the tier only
  std::uint64_t name = 100;
  for (int i = 0; i < 6; ++i, name += 11) {
    run(kv, prefix_names(name, 11));
    save_all(kv);
  }
  EXPECT_EQ(kv.count_blocks(prefix_).in_memory, 0);
  EXPECT_EQ(kv.count_blocks(prefix_).in_tier, 3);
  std::vector<PagedBlock> blocks;
  ASSERT_EQ(kv.begin_loads(prefix_, 12, {}, {}, blocks), LoadStart::kStarted);
  kv.check_integrity();
  for (const PagedBlock& block : blocks) kv.end_load(block, PageLoadEnd::kLoaded);
  for (const PagedBlock& block : blocks) kv.let_go(block);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 3);  // held again
  kv.unpin(prefix_);
  kv.check_integrity();
  EXPECT_EQ(kv.tier().num_protected(), 0);
  for (int i = 0; i < 6; ++i, name += 11) {
    run(kv, prefix_names(name, 11));
    save_all(kv);
  }
  EXPECT_EQ(kv.count_blocks(prefix_).in_tier, 0);
}

TEST_F(KvPins, HalfOfTheTierStaysForOthers) {
  KvManager kv(pin_options(20, 4));
  const std::vector<Hash128> longer = prefix_names(1, 6);
  kv.pin(longer);
  run(kv, longer);
  EXPECT_EQ(save_all(kv), 6);
  EXPECT_EQ(kv.tier().num_protected(), 2);
  run(kv, prefix_names(100, 4));
  EXPECT_EQ(save_all(kv), 4);
  EXPECT_EQ(kv.count_blocks(longer).in_memory, 6);
  kv.unpin(longer);
  kv.check_integrity();
}

TEST_F(KvPins, ADamagedPageIsForgottenAlsoIfProtected) {
  KvManager kv(pin_options(13, 8));
  kv.pin(prefix_);
  run(kv, prefix_);
  save_all(kv);
  kv.release_holds();
  kv.drop_cached();
  std::vector<PagedBlock> blocks;
  ASSERT_EQ(kv.begin_loads(prefix_, 12, {}, {}, blocks), LoadStart::kStarted);
  for (const PagedBlock& block : blocks) {
    kv.end_load(block, block.name == prefix_[1] ? PageLoadEnd::kDamaged : PageLoadEnd::kLoaded);
  }
  for (const PagedBlock& block : blocks) kv.let_go(block);
  kv.check_integrity();
  EXPECT_EQ(kv.tier().num_protected(), 2);
  EXPECT_EQ(kv.count_blocks(prefix_).in_memory, 2);
  EXPECT_EQ(kv.match(prefix_, 12), 4);
  kv.unpin(prefix_);
  kv.check_integrity();
}

}  // namespace
}  // namespace sluice
