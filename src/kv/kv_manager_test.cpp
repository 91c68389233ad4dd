#include "kv/kv_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

using ::testing::ElementsAre;

struct Changes {
  std::vector<BlockTableUpdate> updates;
  std::vector<std::int32_t> ids;
  std::vector<BlockCopy> copies;
  BlockChanges sink() { return {updates, ids, copies}; }
};

KvOptions options(std::int32_t num_blocks, std::vector<std::int32_t> windows = {0}) {
  KvOptions o;
  o.block_size = 4;
  o.group_windows = std::move(windows);
  o.num_blocks = num_blocks;
  o.max_num_seqs = 4;
  o.max_model_len = 64;
  o.max_query_len = 8;
  o.watermark = 0;
  return o;
}

std::vector<Hash128> names(std::uint64_t count) {
  std::vector<Hash128> all;
  for (std::uint64_t i = 1; i <= count; ++i) all.push_back({i, i << 32 | i});
  return all;
}

class KvManagerTest : public ::testing::Test {
 protected:
  std::optional<std::int32_t> admit(KvManager& kv, std::int32_t slot, std::int32_t tokens,
                                    const std::vector<Hash128>& hashes = {},
                                    Headroom headroom = {}) {
    BlockChanges sink = changes_.sink();
    const auto cached = kv.admit(slot, hashes, tokens, headroom, sink);
    kv.check_integrity();
    return cached;
  }
  bool extend(KvManager& kv, std::int32_t slot, std::int32_t first, std::int32_t count) {
    BlockChanges sink = changes_.sink();
    const bool done = kv.extend(slot, first, count, sink);
    kv.check_integrity();
    return done;
  }
  bool fork(KvManager& kv, std::int32_t parent, std::int32_t child, std::int32_t tokens,
            std::int32_t num_tokens) {
    BlockChanges sink = changes_.sink();
    const bool done = kv.fork(parent, child, tokens, num_tokens, {}, sink);
    kv.check_integrity();
    return done;
  }
  Changes changes_;
};

TEST_F(KvManagerTest, APromiseLastsUntilItsBlocksAreTaken) {
  KvManager kv(options(8));  // 7 usable
  ASSERT_EQ(admit(kv, 0, 4), 0);
  ASSERT_TRUE(extend(kv, 0, 0, 4));
  ASSERT_EQ(admit(kv, 1, 4), 0);
  EXPECT_TRUE(kv.promise(0, 12, {}));  // 2 more blocks
  EXPECT_TRUE(kv.promise(0, 9, {}));   // less than it has
  kv.check_integrity();
  EXPECT_EQ(kv.num_available_blocks(), 3);
  EXPECT_FALSE(kv.promise(0, 24, {.blocks = 1}));  // 3 more, of which one must stay
  EXPECT_EQ(kv.num_available_blocks(), 3);
  ASSERT_EQ(admit(kv, 2, 12), 0);  // the last 3
  EXPECT_TRUE(extend(kv, 0, 4, 8));
  EXPECT_FALSE(extend(kv, 0, 12, 1));
  kv.release(0);
  EXPECT_EQ(kv.num_available_blocks(), 3);
}

TEST_F(KvManagerTest, APromiseInAWindowIsBounded) {
  KvManager kv(options(40, {0, 8}));
  ASSERT_EQ(admit(kv, 0, 4), 0);
  EXPECT_TRUE(kv.promise(0, 64, {}));
  // 16 blocks of the full group; a window of 8 and a chunk of 8 touch at most 5.
  EXPECT_EQ(kv.num_available_blocks(), 39 - 16 - 5);
  for (std::int32_t position = 0; position < 64; position += 8) {
    EXPECT_TRUE(extend(kv, 0, position, 8));
  }
}

TEST_F(KvManagerTest, SaysWhatAnAdmissionWouldTake) {
  KvManager kv(options(10));
  const auto hashes = names(3);
  EXPECT_EQ(kv.blocks_to_admit(hashes, 12, 20), 5);
  ASSERT_EQ(admit(kv, 0, 12), 0);
  ASSERT_TRUE(extend(kv, 0, 0, 12));
  kv.publish(0, hashes, 12);
  EXPECT_EQ(kv.blocks_to_admit(hashes, 12, 20), 3);  // 2 blocks are shared with the slot
  kv.release(0);
  EXPECT_EQ(kv.blocks_to_admit(hashes, 12, 20), 5);  // the same 2 are free and would be taken
}

TEST_F(KvManagerTest, AdmissionMayReserveMoreThanThePrompt) {
  KvManager kv(options(6));  // 5 usable
  BlockChanges sink = changes_.sink();
  ASSERT_EQ(kv.admit(0, {}, 5, {}, sink, 13), 0);  // 4 blocks
  EXPECT_EQ(kv.num_available_blocks(), 1);
  EXPECT_EQ(kv.admit(1, {}, 4, {}, sink, 5), std::nullopt);  // 2 blocks
  ASSERT_EQ(kv.admit(1, {}, 4, {}, sink, 2), 0);             // the prompt in any case
  kv.check_integrity();
  // One token after the other, beyond the prompt, as far as was promised.
  EXPECT_TRUE(extend(kv, 0, 0, 5));
  EXPECT_TRUE(extend(kv, 1, 0, 4));
  for (std::int32_t position = 5; position < 13; ++position) {
    EXPECT_TRUE(extend(kv, 0, position, 1));
  }
  EXPECT_FALSE(extend(kv, 1, 4, 1));
  kv.release(0);
  EXPECT_TRUE(extend(kv, 1, 4, 1));
}

TEST_F(KvManagerTest, AdmissionPromisesTheWholePrompt) {
  KvManager kv(options(6));        // 5 usable
  ASSERT_EQ(admit(kv, 0, 13), 0);  // 4 blocks
  EXPECT_EQ(kv.num_free_blocks(), 5);
  EXPECT_EQ(kv.num_available_blocks(), 1);
  EXPECT_EQ(admit(kv, 1, 5), std::nullopt);  // 2 blocks
  ASSERT_EQ(admit(kv, 1, 4), 0);
  // Both get what they were promised, in any order.
  EXPECT_TRUE(extend(kv, 1, 0, 4));
  EXPECT_TRUE(extend(kv, 0, 0, 8));
  EXPECT_TRUE(extend(kv, 0, 8, 5));
  EXPECT_EQ(kv.num_free_blocks(), 0);
  EXPECT_TRUE(extend(kv, 0, 13, 3));   // the rest of the last block
  EXPECT_FALSE(extend(kv, 0, 16, 1));  // there is no more
  kv.release(1);
  EXPECT_TRUE(extend(kv, 0, 16, 1));
  EXPECT_EQ(kv.table(0, 0).size(), 5U);
}

TEST_F(KvManagerTest, HeadroomStaysFree) {
  KvOptions o = options(11);
  o.watermark = 0.25;
  KvManager kv(o);
  EXPECT_EQ(kv.watermark_blocks(), 3);  // of 10
  EXPECT_EQ(admit(kv, 0, 32, {}, {.blocks = 3}), std::nullopt);
  EXPECT_EQ(kv.last_shortage(), 1);
  EXPECT_EQ(admit(kv, 0, 28, {}, {.blocks = 3}), 0);
  kv.release(0);
  EXPECT_EQ(admit(kv, 0, 40), 0);
}

TEST_F(KvManagerTest, CachedBlocksAreSparedWhenAsked) {
  KvManager kv(options(9));  // 8 usable
  admit(kv, 0, 16, names(4));
  extend(kv, 0, 0, 16);
  kv.publish(0, names(4), 16);
  kv.release(0);
  EXPECT_EQ(kv.num_fresh_blocks(), 4);
  EXPECT_EQ(admit(kv, 1, 20, {}, {.spare_cached = true}), std::nullopt);
  EXPECT_EQ(kv.last_shortage(), 1);
  // Its own cached blocks do not count as evicted.
  EXPECT_EQ(admit(kv, 1, 17, names(4), {.spare_cached = true}), 16);
  EXPECT_EQ(admit(kv, 2, 13, {}, {.spare_cached = true}), std::nullopt);
  EXPECT_EQ(admit(kv, 2, 12, {}, {.spare_cached = true}), 0);
}

TEST_F(KvManagerTest, UpdatesCarryTheTable) {
  KvManager kv(options(8));
  admit(kv, 2, 8);
  extend(kv, 2, 0, 8);
  ASSERT_EQ(changes_.updates.size(), 1U);
  const BlockTableUpdate& update = changes_.updates[0];
  EXPECT_EQ(update.slot, 2);
  EXPECT_EQ(update.first_entry, 0);
  EXPECT_EQ(update.count, 2);
  EXPECT_THAT(changes_.ids, ElementsAre(kv.table(2, 0)[0], kv.table(2, 0)[1]));
  extend(kv, 2, 8, 1);
  ASSERT_EQ(changes_.updates.size(), 2U);
  EXPECT_EQ(changes_.updates[1].first_entry, 2);
}

TEST_F(KvManagerTest, PrefixHitsShareBlocksAndLeaveOneTokenToCompute) {
  KvManager kv(options(10));
  const std::vector<Hash128> hashes = names(2);
  admit(kv, 0, 8, hashes);
  extend(kv, 0, 0, 8);
  kv.publish(0, hashes, 4);
  EXPECT_EQ(kv.num_cached_blocks(), 1);
  kv.publish(0, hashes, 8);
  EXPECT_EQ(kv.num_cached_blocks(), 2);
  EXPECT_EQ(kv.match(hashes, 8), 8);
  // The same prompt: the last token must be computed, so its block cannot be taken over.
  EXPECT_EQ(admit(kv, 1, 8, hashes), 4);
  EXPECT_EQ(kv.table(1, 0)[0], kv.table(0, 0)[0]);
  EXPECT_EQ(kv.ref_count(kv.table(0, 0)[0]), 2);
  // A longer one takes both over.
  EXPECT_EQ(admit(kv, 2, 9, hashes), 8);
}

TEST_F(KvManagerTest, FreedBlocksStayFindableUntilReused) {
  KvManager kv(options(5));  // 4 usable
  const std::vector<Hash128> hashes = names(2);
  admit(kv, 0, 9, hashes);
  extend(kv, 0, 0, 9);
  kv.publish(0, hashes, 9);
  kv.release(0);
  EXPECT_EQ(kv.num_free_blocks(), 4);
  EXPECT_EQ(kv.num_cached_blocks(), 2);
  EXPECT_EQ(kv.num_free_cached_blocks(), 2);
  ASSERT_EQ(admit(kv, 1, 9, hashes), 8);  // revived
  EXPECT_EQ(kv.num_free_cached_blocks(), 0);
  EXPECT_EQ(kv.num_available_blocks(), 1);
  kv.release(1);
  // Three other blocks: the two that were never named go first, then the tail, then the head.
  ASSERT_EQ(admit(kv, 2, 12), 0);
  extend(kv, 2, 0, 12);
  EXPECT_EQ(kv.num_cached_blocks(), 1);
  EXPECT_EQ(kv.match(hashes, 100), 4);
}

// The last block of a prompt of whole blocks is computed every time.
TEST_F(KvManagerTest, ARepeatedPromptDoesNotFillTheCacheWithItself) {
  KvManager kv(options(20));
  const std::vector<Hash128> hashes = names(4);
  const std::vector<Hash128> others(hashes.begin() + 2, hashes.end());
  admit(kv, 0, 9, others);
  extend(kv, 0, 0, 9);
  kv.publish(0, others, 9);
  kv.release(0);
  const std::vector<Hash128> again(hashes.begin(), hashes.begin() + 2);
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(admit(kv, 1, 8, again), i == 0 ? 0 : 4);
    extend(kv, 1, i == 0 ? 0 : 4, i == 0 ? 8 : 4);
    kv.publish(1, again, 8);
    EXPECT_EQ(kv.num_cached_blocks(), 4);
    EXPECT_EQ(kv.match(again, 9), 8);
    kv.check_integrity();
    kv.release(1);
  }
  EXPECT_EQ(kv.num_free_cached_blocks(), 4);
  EXPECT_EQ(kv.match(others, 9), 8);
}

TEST_F(KvManagerTest, ABlockInUseKeepsItsName) {
  KvManager kv(options(10));
  const std::vector<Hash128> hashes = names(2);
  for (const std::int32_t slot : {0, 1}) {
    admit(kv, slot, 9, hashes);
    extend(kv, slot, 0, 9);
  }
  kv.publish(0, hashes, 9);
  kv.publish(1, hashes, 9);
  EXPECT_EQ(kv.num_cached_blocks(), 2);
  kv.release(1);  // the copies without names
  EXPECT_EQ(kv.num_free_cached_blocks(), 0);
  ASSERT_EQ(admit(kv, 2, 9, hashes), 8);
  EXPECT_EQ(kv.table(2, 0)[1], kv.table(0, 0)[1]);
}

TEST_F(KvManagerTest, PrefixStatsCountAdmissionsThatAskTheCache) {
  KvManager kv(options(10));
  const std::vector<Hash128> hashes = names(2);
  admit(kv, 0, 9, hashes);
  extend(kv, 0, 0, 9);
  kv.publish(0, hashes, 9);
  kv.release(0);
  admit(kv, 0, 5);  // without hashes: does not ask
  EXPECT_EQ(kv.prefix_stats().queried_tokens, 9);
  EXPECT_EQ(kv.prefix_stats().hit_tokens, 0);
  admit(kv, 1, 20, hashes);
  EXPECT_EQ(kv.prefix_stats().queried_tokens, 29);
  EXPECT_EQ(kv.prefix_stats().hit_tokens, 8);
  EXPECT_EQ(admit(kv, 2, 30, hashes), std::nullopt);  // waits: asks again later, is counted then
  EXPECT_EQ(kv.prefix_stats().queried_tokens, 29);
}

TEST_F(KvManagerTest, ForgottenNamesAreNotFound) {
  KvManager kv(options(5));
  const std::vector<Hash128> hashes = names(1);
  admit(kv, 0, 5, hashes);
  extend(kv, 0, 0, 5);
  kv.publish(0, hashes, 5);
  kv.forget(0);
  kv.release(0);
  EXPECT_EQ(kv.match(hashes, 100), 0);
  kv.check_integrity();
}

TEST_F(KvManagerTest, ForkSharesAndCopiesThePartialTailOnWrite) {
  KvManager kv(options(10));
  admit(kv, 0, 7);
  extend(kv, 0, 0, 7);
  ASSERT_TRUE(kv.can_fork(0, 6));
  ASSERT_TRUE(fork(kv, 0, 1, 6, 7));
  EXPECT_EQ(kv.num_used_blocks(), 2);
  const BlockId tail = kv.table(0, 0)[1];
  ASSERT_TRUE(extend(kv, 1, 6, 1));
  ASSERT_EQ(changes_.copies.size(), 1U);
  EXPECT_EQ(changes_.copies[0].source, tail);
  EXPECT_EQ(changes_.copies[0].target, kv.table(1, 0)[1]);
  EXPECT_EQ(kv.table(0, 0)[0], kv.table(1, 0)[0]);
  // The parent is the only holder again and writes without copying.
  ASSERT_TRUE(extend(kv, 0, 7, 1));
  EXPECT_EQ(changes_.copies.size(), 1U);
  EXPECT_EQ(kv.table(0, 0)[1], tail);
}

TEST_F(KvManagerTest, TheParentCopiesWhenItWritesFirst) {
  KvManager kv(options(10));
  admit(kv, 0, 7);
  extend(kv, 0, 0, 7);
  fork(kv, 0, 1, 6, 7);
  const BlockId tail = kv.table(1, 0)[1];
  ASSERT_TRUE(extend(kv, 0, 7, 1));
  ASSERT_EQ(changes_.copies.size(), 1U);
  EXPECT_NE(kv.table(0, 0)[1], tail);
  EXPECT_EQ(kv.table(1, 0)[1], tail);
  ASSERT_TRUE(extend(kv, 1, 6, 1));
  EXPECT_EQ(changes_.copies.size(), 1U);
}

TEST_F(KvManagerTest, AWholeBlockForkCopiesNothing) {
  KvManager kv(options(10));
  admit(kv, 0, 9);
  extend(kv, 0, 0, 9);
  ASSERT_TRUE(fork(kv, 0, 1, 8, 9));
  ASSERT_TRUE(extend(kv, 1, 8, 1));
  EXPECT_TRUE(changes_.copies.empty());
}

TEST_F(KvManagerTest, SlidingGroupsGiveBlocksBack) {
  KvManager kv(options(40, {8}));
  admit(kv, 0, 24);
  for (std::int32_t first = 0; first < 24; first += 8) ASSERT_TRUE(extend(kv, 0, first, 8));
  // A chunk at 16 sees positions from 9 on: blocks 0 and 1 (positions 0 to 7) are gone.
  EXPECT_EQ(kv.num_used_blocks(), 4);
  EXPECT_THAT(kv.table(0, 0).first(2), ElementsAre(kNullBlock, kNullBlock));
  EXPECT_NE(kv.table(0, 0)[2], kNullBlock);
  for (std::int32_t position = 24; position < 64; ++position) {
    ASSERT_TRUE(extend(kv, 0, position, 1));
    EXPECT_LE(kv.num_used_blocks(), 4);
  }
}

// A window and a chunk are all that a long prompt needs at once.
TEST_F(KvManagerTest, SlidingGroupsRunLongPromptsInLittleMemory) {
  KvManager kv(options(6, {8}));  // 5 usable; window 8 and chunk 8 touch at most 5 blocks
  EXPECT_EQ(kv.blocks_needed(64), 5);
  ASSERT_EQ(admit(kv, 0, 64), 0);
  EXPECT_EQ(kv.num_available_blocks(), 0);
  for (std::int32_t first = 0; first < 64; first += 8) {
    ASSERT_TRUE(extend(kv, 0, first, 8));
    // Blocks that leave the window are promised to the next chunk and to no other slot.
    if (first + 8 <= 48) {
      EXPECT_EQ(kv.num_available_blocks(), 0);
    }
  }
}

TEST_F(KvManagerTest, GroupsAgreeOnAPrefix) {
  KvManager kv(options(40, {0, 8}));
  const std::vector<Hash128> hashes = names(5);
  admit(kv, 0, 21, hashes);
  for (std::int32_t first = 0; first < 21; first += 7) {
    ASSERT_TRUE(extend(kv, 0, first, 7));
    kv.publish(0, hashes, first + 7);
  }
  kv.release(0);
  ASSERT_EQ(admit(kv, 1, 24, hashes), 20);
  EXPECT_THAT(kv.table(1, 1).first(3), ElementsAre(kNullBlock, kNullBlock, kNullBlock));
  EXPECT_NE(kv.table(1, 1)[3], kNullBlock);
  EXPECT_NE(kv.table(1, 0)[0], kNullBlock);
  kv.release(1);
}

TEST_F(KvManagerTest, ForkRefusesWhenTheWindowHasMovedOn) {
  KvManager kv(options(40, {8}));
  admit(kv, 0, 12);
  extend(kv, 0, 0, 8);
  extend(kv, 0, 8, 4);
  EXPECT_TRUE(kv.can_fork(0, 11));
  for (std::int32_t position = 12; position < 20; ++position) extend(kv, 0, position, 1);
  EXPECT_FALSE(kv.can_fork(0, 11));
}

TEST_F(KvManagerTest, PrefixCachingCanBeOff) {
  KvOptions o = options(10);
  o.prefix_caching = PrefixCaching::kOff;
  KvManager kv(o);
  admit(kv, 0, 9, names(2));
  extend(kv, 0, 0, 9);
  kv.publish(0, names(2), 9);
  EXPECT_EQ(kv.num_cached_blocks(), 0);
  EXPECT_EQ(admit(kv, 1, 9, names(2)), 0);
}

TEST_F(KvManagerTest, MemoryGrowsAndShrinks) {
  KvOptions o = options(4);
  o.max_blocks = 10;
  KvManager kv(o);
  EXPECT_EQ(admit(kv, 0, 16), std::nullopt);
  EXPECT_EQ(kv.last_shortage(), 1);
  kv.resize(6);
  EXPECT_EQ(admit(kv, 0, 16, names(4)), 0);
  extend(kv, 0, 0, 16);
  kv.publish(0, names(4), 16);
  kv.release(0);
  kv.resize(2);  // cached blocks go with their memory
  EXPECT_LE(kv.num_cached_blocks(), 1);
  kv.check_integrity();
}

TEST_F(KvManagerTest, HeldBlocksMoveDownWithTheirNamesAndSharers) {
  KvManager kv(options(13));
  admit(kv, 0, 16);
  extend(kv, 0, 0, 16);  // 1 to 4
  admit(kv, 1, 18, names(4));
  extend(kv, 1, 0, 18);  // 5 to 9
  kv.publish(1, names(4), 18);
  ASSERT_TRUE(fork(kv, 1, 2, 17, 18));  // shares 5 to 9, promised a copy of 9
  kv.release(0);
  kv.resize(8);
  EXPECT_EQ(kv.num_blocks_above(), 2);
  EXPECT_EQ(kv.num_available_blocks(), 1);
  kv.check_integrity();
  for (const std::int32_t left : {1, 0}) {
    changes_ = {};
    BlockChanges sink = changes_.sink();
    kv.move_down(1, sink);
    kv.check_integrity();
    EXPECT_EQ(kv.num_blocks_above(), left);
    ASSERT_EQ(changes_.copies.size(), 1U);
    EXPECT_EQ(changes_.copies[0].source, left == 1 ? 8 : 9);
    EXPECT_LT(changes_.copies[0].target, 8);
    EXPECT_EQ(changes_.updates.size(), 2U);  // of both sharers
  }
  EXPECT_TRUE(std::ranges::equal(kv.table(1, 0), kv.table(2, 0)));
  kv.release(1);
  kv.release(2);
  // The named block that moved is still found.
  EXPECT_EQ(admit(kv, 3, 17, names(4)), 16);
}

TEST_F(KvManagerTest, BlocksAboveTheEndDoNotComeBackWhenReleased) {
  KvManager kv(options(9));
  admit(kv, 0, 8);
  extend(kv, 0, 0, 8);  // 1, 2
  admit(kv, 1, 8, names(2));
  extend(kv, 1, 0, 8);  // 3, 4
  kv.publish(1, names(2), 8);
  kv.release(0);
  kv.resize(4);
  EXPECT_EQ(kv.num_blocks_above(), 1);
  kv.release(1);
  kv.check_integrity();
  EXPECT_EQ(kv.num_usable_blocks(), 3);
  EXPECT_EQ(kv.num_available_blocks(), 3);
  EXPECT_EQ(kv.num_cached_blocks(), 1);
}

TEST_F(KvManagerTest, DroppedBlocksAreFoundNoMore) {
  KvManager kv(options(9));
  admit(kv, 0, 12, names(3));
  extend(kv, 0, 0, 12);
  kv.publish(0, names(3), 12);
  kv.release(0);
  admit(kv, 0, 5, names(1));  // holds the first
  kv.drop_cached();
  kv.check_integrity();
  EXPECT_EQ(kv.num_cached_blocks(), 1);
  EXPECT_EQ(kv.num_free_cached_blocks(), 0);
  EXPECT_EQ(kv.match(names(3), 12), 4);
}

TEST_F(KvManagerTest, HeldBlocksAreNotEvicted) {
  KvManager kv(options(6));  // 5 usable
  const auto warm = names(2);
  kv.hold(warm);
  EXPECT_EQ(kv.num_pinned_blocks(), 0);
  ASSERT_EQ(admit(kv, 0, 8, warm), 0);
  ASSERT_TRUE(extend(kv, 0, 0, 8));
  kv.publish(0, warm, 8);
  EXPECT_EQ(kv.num_pinned_blocks(), 2);
  kv.release(0);
  kv.check_integrity();
  EXPECT_EQ(kv.num_used_blocks(), 2);
  // Another sequence takes all other blocks, and no more.
  ASSERT_EQ(admit(kv, 1, 12), 0);
  ASSERT_TRUE(extend(kv, 1, 0, 12));
  EXPECT_FALSE(extend(kv, 1, 12, 4));
  kv.drop_cached();
  EXPECT_EQ(kv.match(warm, 8), 8);
  // Until the holds end.
  EXPECT_TRUE(kv.release_holds());
  EXPECT_FALSE(kv.release_holds());
  kv.check_integrity();
  EXPECT_EQ(kv.match(warm, 8), 8);
  EXPECT_TRUE(extend(kv, 1, 12, 8));
  EXPECT_EQ(kv.match(warm, 8), 0);
}

TEST_F(KvManagerTest, HoldsWhatIsCachedAlready) {
  KvManager kv(options(6));
  const auto warm = names(2);
  ASSERT_EQ(admit(kv, 0, 8, warm), 0);
  ASSERT_TRUE(extend(kv, 0, 0, 8));
  kv.publish(0, warm, 8);
  kv.release(0);
  EXPECT_EQ(kv.num_free_cached_blocks(), 2);
  EXPECT_EQ(kv.blocks_to_hold(warm), 2);
  kv.hold(warm);
  kv.hold(warm);
  kv.check_integrity();
  EXPECT_EQ(kv.blocks_to_hold(warm), 0);
  EXPECT_EQ(kv.num_free_cached_blocks(), 0);
  EXPECT_EQ(kv.num_pinned_blocks(), 2);
}

TEST_F(KvManagerTest, AdoptedBlocksAreFoundAndHeld) {
  KvManager kv(options(4));  // 3 usable
  const auto warm = names(4);
  kv.hold(warm);
  const BlockId first = kv.adopt(warm[0], 0);
  ASSERT_NE(first, kNullBlock);
  kv.check_integrity();
  ASSERT_NE(kv.adopt(warm[1], 0), kNullBlock);
  ASSERT_NE(kv.adopt(warm[2], 0), kNullBlock);
  EXPECT_EQ(kv.adopt(warm[3], 0), kNullBlock);  // memory is short
  kv.check_integrity();
  EXPECT_EQ(kv.match(warm, 16), 12);
  EXPECT_EQ(kv.needed_blocks(warm)[0].id, first);
  EXPECT_EQ(kv.needed_blocks(warm)[3].id, kNullBlock);
}

TEST_F(KvManagerTest, ASlidingGroupHoldsWhatTheNextTokenSees) {
  KvManager kv(options(20, {0, 6}));
  const auto warm = names(4);
  // All four of the full group; position 16 sees from 11 on, which is in the third block.
  EXPECT_EQ(kv.blocks_to_hold(warm), 4 + 2);
  kv.hold(warm);
  for (const BlockPlace& place : kv.needed_blocks(warm)) {
    ASSERT_NE(kv.adopt(warm[static_cast<std::size_t>(place.index)], place.group), kNullBlock);
  }
  kv.check_integrity();
  EXPECT_EQ(kv.match(warm, 16), 16);
  ASSERT_EQ(admit(kv, 0, 17, warm), 16);
}

TEST_F(KvManagerTest, HeldBlocksMoveDownWithTheEnd) {
  KvManager kv(options(8));
  const auto warm = names(2);
  ASSERT_EQ(admit(kv, 1, 16), 0);
  ASSERT_TRUE(extend(kv, 1, 0, 16));
  kv.hold(warm);
  const BlockId before = kv.adopt(warm[0], 0);
  ASSERT_NE(before, kNullBlock);
  kv.release(1);
  kv.resize(3);
  EXPECT_EQ(kv.num_blocks_above(), 1);
  kv.check_integrity();
  changes_ = {};
  BlockChanges sink = changes_.sink();
  kv.move_down(8, sink);
  kv.check_integrity();
  EXPECT_EQ(kv.num_blocks_above(), 0);
  ASSERT_EQ(changes_.copies.size(), 1U);
  EXPECT_EQ(changes_.copies[0].source, before);
  EXPECT_EQ(kv.needed_blocks(std::span(warm).first(1))[0].id, changes_.copies[0].target);
}

// A promise may cover all free blocks, cached ones included.
TEST_F(KvManagerTest, PromisedBlocksAreNotHeld) {
  KvManager kv(options(6));  // 5 usable
  const auto warm = names(2);
  ASSERT_EQ(admit(kv, 0, 8, warm), 0);
  ASSERT_TRUE(extend(kv, 0, 0, 8));
  kv.publish(0, warm, 8);
  kv.release(0);
  ASSERT_EQ(admit(kv, 1, 20), 0);
  ASSERT_EQ(kv.num_available_blocks(), 0);
  kv.hold(warm);
  kv.check_integrity();
  EXPECT_EQ(kv.num_pinned_blocks(), 0);
}

// Wrong contents are neither found nor held any more; the next right ones are held again.
TEST_F(KvManagerTest, ForgottenBlocksAreNotHeld) {
  KvManager kv(options(6));
  const auto warm = names(1);
  kv.hold(warm);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(admit(kv, 0, 4, warm), 0);
    ASSERT_TRUE(extend(kv, 0, 0, 4));
    kv.publish(0, warm, 4);
    EXPECT_EQ(kv.num_pinned_blocks(), 1);
    kv.forget(0);
    kv.check_integrity();
    EXPECT_EQ(kv.num_pinned_blocks(), 0);
    kv.release(0);
    kv.check_integrity();
    EXPECT_EQ(kv.num_used_blocks(), 0);
  }
}

}  // namespace
}  // namespace sluice
