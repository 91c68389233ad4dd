#include "kv/tier_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr TierEviction kSeconds = TierEviction::kSeconds;

// Uses the blocks of a sequence, the last first; `depth` is that of the last one.
void use_chain(TierOrder& order, const std::vector<BlockId>& ids, std::int32_t depth) {
  for (std::size_t i = ids.size(); i-- > 0;) {
    if (order.contains(ids[i])) order.remove(ids[i]);
    order.use(ids[i], depth);
    order.insert(ids[i]);
  }
}

std::vector<BlockId> take_all(TierOrder& order) {
  std::vector<BlockId> taken;
  while (order.size() > 0) {
    taken.push_back(order.take());
    order.check_integrity();
  }
  return taken;
}

TEST(TierOrder, BlocksUsedOnceGoInTheOrderOfUseTheLastOfASequenceFirst) {
  TierOrder order(6, {.by = kSeconds});
  use_chain(order, {1, 2, 3}, 2);
  use_chain(order, {4, 5, 6}, 2);
  EXPECT_EQ(take_all(order), (std::vector<BlockId>{3, 2, 1, 6, 5, 4}));
}

TEST(TierOrder, ALongerSequenceIsWorthMoreAlsoItsFirstBlocks) {
  TierOrder order(4, {.by = kSeconds, .even_depth = 10});
  use_chain(order, {1, 2}, 10);
  use_chain(order, {3}, 0);
  use_chain(order, {4}, 20);
  EXPECT_DOUBLE_EQ(order.value(1), 2);
  EXPECT_DOUBLE_EQ(order.value(2), 2);
  EXPECT_DOUBLE_EQ(order.value(3), 1);
  EXPECT_DOUBLE_EQ(order.value(4), 3);
  EXPECT_EQ(take_all(order), (std::vector<BlockId>{3, 2, 1, 4}));
}

TEST(TierOrder, AttentionCostsNoMoreBeyondItsWindow) {
  TierOrder order(2, {.by = kSeconds, .even_depth = 10, .window = 5});
  use_chain(order, {1}, 5);
  use_chain(order, {2}, 1000);
  EXPECT_DOUBLE_EQ(order.value(1), 1.5);
  EXPECT_DOUBLE_EQ(order.value(2), 1.5);
}

TEST(TierOrder, UsesKeepABlockUntilTheFloorHasRisen) {
  TierOrder order(4, {.by = kSeconds});
  use_chain(order, {1}, 1);
  use_chain(order, {1}, 1);
  use_chain(order, {1}, 1);
  EXPECT_DOUBLE_EQ(order.value(1), 3);
  // Blocks that are used once come and go, each with a value one above the last that went.
  int others = 0;
  for (BlockId id = 2;; id = 2 + others % 2) {
    use_chain(order, {id}, 1);
    if (order.take() == 1) break;
    order.reset(id);
    ++others;
    ASSERT_LT(others, 10);
  }
  EXPECT_EQ(others, 2);
}

TEST(TierOrder, AnotherBlockOfAPageBeginsAnew) {
  TierOrder order(1, {.by = kSeconds});
  use_chain(order, {1}, 1);
  use_chain(order, {1}, 1);
  EXPECT_EQ(order.take(), 1);
  order.reset(1);
  use_chain(order, {1}, 1);
  EXPECT_DOUBLE_EQ(order.value(1), 3);  // the floor of 2, and one use
}

// Against a search through all pages.
TEST(TierOrder, TheHeapTakesTheSmallestOfAll) {
  std::mt19937 rng(7);
  const auto pick = [&](int count) {
    return static_cast<std::int32_t>(rng() % static_cast<unsigned>(count));
  };
  for (int round = 0; round < 20; ++round) {
    constexpr std::int32_t kPages = 40;
    TierOrder order(kPages, {.by = kSeconds, .even_depth = 4});
    std::map<BlockId, int> used_at;
    std::set<BlockId> inside;
    for (int step = 0; step < 2000; ++step) {
      const BlockId id = 1 + pick(kPages);
      if (inside.contains(id) && pick(2) == 0) {
        order.remove(id);
        inside.erase(id);
      } else if (!inside.contains(id)) {
        order.use(id, pick(30));
        used_at[id] = step;
        order.insert(id);
        inside.insert(id);
      } else if (pick(3) == 0) {
        BlockId least = *inside.begin();
        for (const BlockId other : inside) {
          if (std::pair(order.value(other), used_at[other]) <
              std::pair(order.value(least), used_at[least])) {
            least = other;
          }
        }
        ASSERT_EQ(order.take(), least);
        inside.erase(least);
        order.reset(least);
      }
      ASSERT_EQ(order.size(), static_cast<std::int32_t>(inside.size()));
    }
    order.check_integrity();
  }
}

}  // namespace
}  // namespace sluice
