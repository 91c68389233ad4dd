#include "serverless/offload_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>

#include "base/rng.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kGone = OffloadTarget::kNothing;

OffloadItem item_of(std::int64_t bytes, double value, std::int32_t needs = -1,
                    bool in_use = false) {
  OffloadItem item;
  item.bytes = bytes;
  item.value = value;
  item.needs = needs;
  item.in_use = in_use;
  return item;
}

TEST(OffloadPolicyTest, LeastValuePerByteGoesFirst) {
  const std::vector<OffloadItem> items = {item_of(10, 5), item_of(10, 1), item_of(10, 3)};
  OffloadPolicy policy;
  EXPECT_THAT(policy.plan({items, 10, {}})->moves, ElementsAre(OffloadMove{1, kGone}));
  EXPECT_THAT(policy.plan({items, 11, {}})->moves,
              ElementsAre(OffloadMove{2, kGone}, OffloadMove{1, kGone}));
  EXPECT_THAT(policy.plan({items, 0, {}})->moves, IsEmpty());
  EXPECT_FALSE(policy.plan({items, 31, {}}));
}

TEST(OffloadPolicyTest, BackboneTakesItsFunctionsAlong) {
  // A backbone without calls of its own, with a valuable adapter; and an item of medium value.
  const std::vector<OffloadItem> items = {item_of(100, 1), item_of(10, 50, 0), item_of(100, 9)};
  OffloadPolicy policy;
  EXPECT_THAT(policy.plan({items, 100, {}})->moves, ElementsAre(OffloadMove{2, kGone}));
  const auto all = policy.plan({items, 150, {}});
  EXPECT_THAT(all->moves,
              ElementsAre(OffloadMove{2, kGone}, OffloadMove{1, kGone}, OffloadMove{0, kGone}));
  EXPECT_EQ(all->freed, 210);
  EXPECT_DOUBLE_EQ(all->lost, 60);
}

TEST(OffloadPolicyTest, NothingInUseGoesNorThatItNeeds) {
  const std::vector<OffloadItem> items = {item_of(100, 0), item_of(10, 0, 0, true),
                                          item_of(10, 7, 0)};
  OffloadPolicy policy;
  EXPECT_THAT(policy.plan({items, 10, {}})->moves, ElementsAre(OffloadMove{2, kGone}));
  EXPECT_FALSE(policy.plan({items, 11, {}}));
}

TEST(OffloadPolicyTest, BytesThatAreNotNeededStay) {
  // By density the small ones go first, but the large one alone is enough.
  const std::vector<OffloadItem> items = {item_of(100, 10), item_of(10, 0.5), item_of(10, 0.6)};
  OffloadPolicy policy;
  EXPECT_THAT(policy.plan({items, 100, {}})->moves, ElementsAre(OffloadMove{0, kGone}));
  // One dear item that is enough alone, against three cheap ones.
  const std::vector<OffloadItem> cheap = {item_of(30, 9), item_of(10, 1), item_of(10, 1),
                                          item_of(10, 1)};
  EXPECT_DOUBLE_EQ(policy.plan({cheap, 30, {}})->lost, 3);
}

TEST(OffloadPolicyTest, ItemsMoveToTheBestPlaceWithRoom) {
  std::vector<OffloadItem> items = {item_of(10, 5), item_of(10, 4)};
  items[0].value_after = {0, 1, 3};
  items[1].value_after = {0, 1, 3.5};
  OffloadPolicy policy;
  const auto plan = policy.plan({items, 20, {0, 100, 10}});
  EXPECT_THAT(plan->moves, ElementsAre(OffloadMove{1, OffloadTarget::kHost},
                                       OffloadMove{0, OffloadTarget::kDisk}));
  EXPECT_DOUBLE_EQ(plan->lost, 0.5 + 4);
  // The item that loses less by its move goes, although it is worth more where it is.
  items[0].value_after = {0, 0, 4.9};
  EXPECT_THAT(policy.plan({items, 10, {0, 0, 100}})->moves,
              ElementsAre(OffloadMove{0, OffloadTarget::kHost}));
}

struct RandomItems {
  std::vector<OffloadItem> items;
  std::int64_t bytes = 0;  // of all
};

RandomItems random_items(SplitMix64& random, std::int32_t count) {
  RandomItems result;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto bytes = static_cast<std::int64_t>(random.below(40));
    // A forest: about a third needs nothing.
    const std::int32_t needs =
        i == 0 || random.below(3) == 0
            ? -1
            : static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i)));
    const bool in_use = random.below(8) == 0;
    result.items.push_back(item_of(bytes, random.uniform() * 10, needs, in_use));
    result.bytes += bytes;
  }
  return result;
}

// The least loss of all sets that may go and free enough; infinite: there is none.
double least_loss(const std::vector<OffloadItem>& items, std::int64_t needed) {
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t set = 0; set < (1U << items.size()); ++set) {
    std::int64_t freed = 0;
    double lost = 0;
    bool allowed = true;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool goes = (set >> i & 1U) != 0;
      const std::int32_t needs = items[i].needs;
      if (goes && items[i].in_use) allowed = false;
      if (!goes && needs >= 0 && (set >> needs & 1U) != 0) allowed = false;
      if (!goes) continue;
      freed += items[i].bytes;
      lost += items[i].value;
    }
    if (allowed && freed >= needed) least = std::min(least, lost);
  }
  return least;
}

TEST(OffloadPolicyTest, IsNearTheOptimumOfSmallSets) {
  SplitMix64 random(7);
  OffloadPolicy policy;
  double ratios = 0;
  double worst = 1;
  int cases = 0;
  for (int round = 0; round < 1000; ++round) {
    const RandomItems set = random_items(random, 10);
    const auto needed =
        static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(set.bytes + 1)));
    const double least = least_loss(set.items, needed);
    const auto plan = policy.plan({set.items, needed, {}});
    ASSERT_EQ(plan.has_value(), least < std::numeric_limits<double>::infinity()) << round;
    if (!plan) continue;
    std::vector<bool> goes(set.items.size());
    std::int64_t freed = 0;
    for (const OffloadMove& move : plan->moves) {
      const auto i = static_cast<std::size_t>(move.item);
      goes[i] = true;
      freed += set.items[i].bytes;
      ASSERT_FALSE(set.items[i].in_use) << round;
    }
    for (std::size_t i = 0; i < goes.size(); ++i) {
      const std::int32_t needs = set.items[i].needs;
      if (needs >= 0 && goes[static_cast<std::size_t>(needs)]) {
        ASSERT_TRUE(goes[i]) << round;
      }
    }
    ASSERT_EQ(freed, plan->freed);
    ASSERT_GE(freed, needed);
    ASSERT_GE(plan->lost, least - 1e-9);
    const double ratio = least > 0 ? plan->lost / least : 1;
    ratios += ratio;
    worst = std::max(worst, ratio);
    ++cases;
  }
  std::printf("offload: mean loss %.4f of the least, worst %.3f, %d cases\n", ratios / cases, worst,
              cases);
  EXPECT_GT(cases, 300);
  EXPECT_LE(ratios / cases, 1.05);
  EXPECT_LE(worst, 3);
}

}  // namespace
}  // namespace sluice
