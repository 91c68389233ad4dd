// The partial block of a displaced sequence: KvManager::publish_tail().
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kv/kv_manager.h"

namespace sluice {
namespace {

constexpr Hash128 kTail{77, 78};

KvOptions tail_options(std::int32_t tier_pages, std::vector<std::int32_t> windows = {0}) {
  KvOptions o;
  o.block_size = 4;
  o.group_windows = std::move(windows);
  o.num_blocks = 20;
  o.max_num_seqs = 4;
  o.max_model_len = 64;
  o.max_query_len = 8;
  o.watermark = 0;
  o.tier_pages = tier_pages;
  return o;
}

std::vector<Hash128> full_names(std::uint64_t count) {
  std::vector<Hash128> all;
  for (std::uint64_t i = 1; i <= count; ++i) all.push_back({i, i << 32 | i});
  return all;
}

class KvTail : public ::testing::Test {
 protected:
  BlockChanges sink() {
    updates_.clear();
    ids_.clear();
    copies_.clear();
    return {updates_, ids_, copies_};
  }
  std::optional<std::int32_t> admit(KvManager& kv, std::int32_t slot, std::int32_t tokens,
                                    const BlockNames& known) {
    BlockChanges changes = sink();
    const auto cached = kv.admit(slot, known, tokens, {}, changes);
    kv.check_integrity();
    return cached;
  }
  bool extend(KvManager& kv, std::int32_t slot, std::int32_t first, std::int32_t count) {
    BlockChanges changes = sink();
    const bool done = kv.extend(slot, first, count, changes);
    kv.check_integrity();
    return done;
  }
  // Slot 0 computes 10 tokens, two full blocks and a tail, and is displaced.
  void displace(KvManager& kv) {
    ASSERT_EQ(admit(kv, 0, 11, {}), 0);
    ASSERT_TRUE(extend(kv, 0, 0, 8));
    ASSERT_TRUE(extend(kv, 0, 8, 2));
    kv.publish(0, full_names(2), 10);
    ASSERT_TRUE(kv.publish_tail(0, kTail, 10));
    kv.release(0);
    kv.check_integrity();
  }

  std::vector<BlockTableUpdate> updates_;
  std::vector<std::int32_t> ids_;
  std::vector<BlockCopy> copies_;
  const std::vector<Hash128> full_ = full_names(2);
};

TEST_F(KvTail, IsFoundOnlyByItsNameAndOnlyBehindTheFullBlocks) {
  for (const auto& windows : {std::vector<std::int32_t>{0}, {6}, {0, 3}}) {
    KvManager kv(tail_options(0, windows));
    displace(kv);
    EXPECT_EQ(kv.match(full_, 20), 8);
    EXPECT_EQ(kv.match({full_, kTail, 10}, 20), 10);
    EXPECT_EQ(kv.match({full_, kTail, 10}, 9), 8);  // one token is always computed
    EXPECT_EQ(kv.match({full_, Hash128{5, 6}, 10}, 20), 8);
  }
}

TEST_F(KvTail, TheNextWriteRemovesTheName) {
  KvManager kv(tail_options(0));
  displace(kv);
  ASSERT_EQ(admit(kv, 1, 11, {full_, kTail, 10}), 10);
  EXPECT_EQ(kv.match({full_, kTail, 10}, 20), 10);
  ASSERT_TRUE(extend(kv, 1, 10, 1));
  EXPECT_TRUE(copies_.empty());  // it is written in place
  EXPECT_EQ(kv.match({full_, kTail, 10}, 20), 8);
  // The block gets its own name once it is full.
  ASSERT_TRUE(extend(kv, 1, 11, 1));
  kv.publish(1, full_names(3), 12);
  EXPECT_EQ(kv.match(full_names(3), 20), 12);
  kv.release(1);
  kv.check_integrity();
}

TEST_F(KvTail, AnUnchangedTailIsSavedOnceAndItsTokensAreReported) {
  KvManager kv(tail_options(8));
  displace(kv);
  std::int32_t saves = 0;
  const auto save_all = [&] {
    while (const auto block = kv.begin_save()) {
      ++saves;
      EXPECT_EQ(block->tokens, block->name == kTail ? 2 : 0);
      EXPECT_EQ(block->depth, 2) << "each counts with the depth of the last";
      kv.end_save(*block, true);
    }
    kv.check_integrity();
  };
  save_all();
  EXPECT_EQ(saves, 3);
  // It returns and is displaced again before it computes anything.
  ASSERT_EQ(admit(kv, 1, 11, {full_, kTail, 10}), 10);
  EXPECT_TRUE(kv.publish_tail(1, kTail, 10));
  kv.release(1);
  save_all();
  EXPECT_EQ(saves, 3);
  // Memory forgets it, and the tier has it.
  kv.drop_cached();
  EXPECT_EQ(kv.match({full_, kTail, 10}, 20), 0);
  EXPECT_EQ(kv.match_with_tier({full_, kTail, 10}, 20), 10);
  std::vector<PagedBlock> blocks;
  ASSERT_EQ(kv.begin_loads({full_, kTail, 10}, 10, {}, {}, blocks), LoadStart::kStarted);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[2].tokens, 2);
  EXPECT_EQ(blocks[2].depth, 2);
  for (const PagedBlock& block : blocks) kv.end_load(block, PageLoadEnd::kLoaded);
  for (const PagedBlock& block : blocks) kv.let_go(block);
  EXPECT_EQ(kv.match({full_, kTail, 10}, 20), 10);
  kv.forget_names({&kTail, 1});
  kv.check_integrity();
  EXPECT_EQ(kv.match_with_tier({full_, kTail, 10}, 20), 8);
  EXPECT_EQ(kv.tier().num_saved(), 2);
}

TEST_F(KvTail, ATailThatIsBeingSavedIsCopiedBeforeAWrite) {
  KvManager kv(tail_options(8));
  displace(kv);
  std::vector<PagedBlock> saves;
  while (const auto block = kv.begin_save()) saves.push_back(*block);
  ASSERT_EQ(saves.size(), 3U);
  // The copy is promised: an admission that takes all other blocks leaves it.
  ASSERT_EQ(admit(kv, 1, 11, {full_, kTail, 10}), 10);
  const std::int32_t others = kv.num_available_blocks();
  ASSERT_EQ(admit(kv, 2, 4 * others, {}), 0);
  EXPECT_EQ(kv.num_available_blocks(), 0);
  ASSERT_TRUE(extend(kv, 1, 10, 1));
  EXPECT_EQ(copies_.size(), 1U);
  for (const PagedBlock& block : saves) kv.end_save(block, true);
  kv.check_integrity();
  EXPECT_EQ(kv.match_with_tier({full_, kTail, 10}, 20), 10);
  // Forgotten while it is saved, it does not come back.
  kv.forget_names({&kTail, 1});
  EXPECT_EQ(kv.match_with_tier({full_, kTail, 10}, 20), 8);
}

TEST_F(KvTail, ABlockThatOthersUseGetsNoName) {
  KvManager kv(tail_options(0));
  ASSERT_EQ(admit(kv, 0, 11, {}), 0);
  ASSERT_TRUE(extend(kv, 0, 0, 8));
  ASSERT_TRUE(extend(kv, 0, 8, 2));
  BlockChanges changes = sink();
  ASSERT_TRUE(kv.fork(0, 1, 10, 11, {}, changes));
  EXPECT_FALSE(kv.publish_tail(1, kTail, 10));
  kv.release(1);
  EXPECT_TRUE(kv.publish_tail(0, kTail, 10));
  kv.release(0);
  kv.check_integrity();
}

}  // namespace
}  // namespace sluice
