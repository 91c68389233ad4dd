#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

TEST(BlockPool, GivesOutAllButTheNullBlockInOrder) {
  BlockPool pool(4, 4);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_used(), 3);
  pool.check_integrity();
}

TEST(BlockPool, ReusesTheWorthlessFirstAndTheLastReleasedLast) {
  BlockPool pool(6, 6);
  for (int i = 0; i < 5; ++i) pool.take();
  pool.release(2, ReuseOrder::kLast);
  pool.release(4, ReuseOrder::kLast);
  pool.release(1, ReuseOrder::kFirst);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 2);
  EXPECT_EQ(pool.take(), 4);
  pool.check_integrity();
}

TEST(BlockPool, ABlockIsFreeWhenItsLastHolderLeaves) {
  BlockPool pool(3, 3);
  const BlockId id = pool.take();
  pool.add_ref(id);
  EXPECT_FALSE(pool.release(id, ReuseOrder::kLast));
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_TRUE(pool.release(id, ReuseOrder::kLast));
  EXPECT_EQ(pool.num_used(), 0);
}

TEST(BlockPool, RevivesAFreeBlockFromTheMiddle) {
  BlockPool pool(5, 5);
  pool.add_ref(2);
  EXPECT_EQ(pool.ref_count(2), 1);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.take(), 4);
  EXPECT_EQ(pool.num_free(), 0);
  pool.check_integrity();
}

TEST(BlockPool, DemotedBlocksAreUsedNext) {
  BlockPool pool(5, 5);
  pool.demote(3);
  EXPECT_EQ(pool.take(), 3);
  pool.check_integrity();
}

TEST(BlockPool, GrowsAndShrinksAtTheEnd) {
  BlockPool pool(3, 8);
  pool.take();
  pool.set_end(6);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.take(), 3);  // new blocks first: cached ones keep their contents
  pool.set_end(4);
  EXPECT_EQ(pool.num_blocks(), 4);
  EXPECT_EQ(pool.num_above(), 0);
  pool.check_integrity();
}

TEST(BlockPool, HeldBlocksAboveTheEndMoveDownOrLeave) {
  BlockPool pool(8, 8);
  for (int i = 0; i < 7; ++i) pool.take();
  pool.add_ref(6);
  for (const BlockId id : {1, 2, 3}) pool.release(id, ReuseOrder::kLast);
  pool.set_end(5);
  EXPECT_EQ(pool.num_above(), 3);  // 5, 6 and 7
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.num_used(), 4);
  pool.check_integrity();
  EXPECT_EQ(pool.move(6), 1);
  EXPECT_EQ(pool.ref_count(1), 2);
  EXPECT_TRUE(pool.release(7, ReuseOrder::kLast));
  EXPECT_EQ(pool.num_above(), 1);
  EXPECT_EQ(pool.num_free(), 2);  // 7 is out of service
  pool.check_integrity();
  pool.set_end(8);  // 5 is in service again, and held
  EXPECT_EQ(pool.num_above(), 0);
  EXPECT_EQ(pool.take(), 6);
  EXPECT_EQ(pool.take(), 7);
  EXPECT_EQ(pool.take(), 2);
  pool.check_integrity();
}

TEST(BlockPool, RandomOperationsKeepTheCounts) {
  SplitMix64 rng(7);
  BlockPool pool(20, 40);
  std::map<BlockId, int> held;
  for (int i = 0; i < 20000; ++i) {
    const auto what = rng.below(6);
    if (what == 0 && pool.num_free() > 0) {
      held[pool.take()] = 1;
    } else if (what == 1) {
      const auto id =
          static_cast<BlockId>(1 + rng.below(static_cast<std::uint64_t>(pool.num_blocks() - 1)));
      pool.add_ref(id);
      ++held[id];
    } else if (what <= 3 && !held.empty()) {
      auto it = std::next(held.begin(), static_cast<std::ptrdiff_t>(rng.below(held.size())));
      const auto order = rng.below(2) == 0 ? ReuseOrder::kFirst : ReuseOrder::kLast;
      EXPECT_EQ(pool.release(it->first, order), it->second == 1);
      if (--it->second == 0) held.erase(it);
    } else if (what == 4) {
      pool.set_end(static_cast<std::int32_t>(10 + rng.below(31)));
    } else if (what == 5 && pool.num_above() > 0 && pool.num_free() > 0) {
      BlockId from = pool.num_blocks();
      while (pool.ref_count(from) == 0) ++from;
      const BlockId to = pool.move(from);
      ASSERT_EQ(held.count(to), 0U);
      held[to] = held[from];
      held.erase(from);
    }
    pool.check_integrity();
    ASSERT_EQ(pool.num_used(), static_cast<std::int32_t>(held.size()));
    for (const auto& [id, count] : held) ASSERT_EQ(pool.ref_count(id), count);
  }
}

TEST(BlockPool, BlocksWithACopyAreReusedBeforeTheOtherCachedOnes) {
  BlockPool pool(6, 6);
  for (BlockId id = 1; id <= 5; ++id) ASSERT_EQ(pool.take(), id);
  pool.release(1, ReuseOrder::kLast);
  pool.release(2, ReuseOrder::kMiddle);
  pool.release(3, ReuseOrder::kMiddle);
  pool.release(4, ReuseOrder::kFirst);
  pool.release(5, ReuseOrder::kLast);
  pool.check_integrity();
  for (const BlockId id : {4, 2, 3, 1, 5}) EXPECT_EQ(pool.take(), id);
  EXPECT_EQ(pool.num_free(), 0);
  pool.check_integrity();
}

}  // namespace
}  // namespace sluice
