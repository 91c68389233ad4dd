#include "placement/stable_match.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/rng.h"

namespace sluice {
namespace {

TEST(StableMatchTest, PairsTheLargestNeedWithTheProducerThatCoversIt) {
  const std::vector<std::int64_t> spare = {40, -30, 30, -10, 0, 35};
  const auto pairs = match_memory(spare);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].consumer, 1);
  EXPECT_EQ(pairs[0].producer, 2);  // 30 covers 30, and no larger producer is used up
  EXPECT_EQ(pairs[0].lent_mb, 30);
  EXPECT_EQ(pairs[1].consumer, 3);
  EXPECT_EQ(pairs[1].producer, 5);
  EXPECT_EQ(pairs[1].lent_mb, 10);
}

TEST(StableMatchTest, WithoutProducersThereIsNoPair) {
  EXPECT_TRUE(match_memory(std::vector<std::int64_t>{-5, -6, 0}).empty());
  EXPECT_TRUE(match_memory({}).empty());
}

// Random servers: one to one, the larger side is the only one with GPUs left over, and no producer
// and consumer would both lend more bytes with each other than with their partners.
TEST(StableMatchTest, RandomMatchesAreStable) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SplitMix64 rng(seed);
    std::vector<std::int64_t> spare(1 + rng.below(12));
    for (auto& mb : spare) mb = static_cast<std::int64_t>(rng.below(13)) - 6;
    const auto pairs = match_memory(spare);
    std::vector<std::optional<MemoryPair>> of(spare.size());
    for (const MemoryPair& pair : pairs) {
      for (const std::int32_t gpu : {pair.producer, pair.consumer}) {
        ASSERT_FALSE(of[static_cast<std::size_t>(gpu)]) << "seed " << seed;
        of[static_cast<std::size_t>(gpu)] = pair;
      }
      ASSERT_GT(spare[static_cast<std::size_t>(pair.producer)], 0);
      ASSERT_LT(spare[static_cast<std::size_t>(pair.consumer)], 0);
    }
    const auto producers = std::ranges::count_if(spare, [](std::int64_t mb) { return mb > 0; });
    const auto consumers = std::ranges::count_if(spare, [](std::int64_t mb) { return mb < 0; });
    ASSERT_EQ(static_cast<std::int64_t>(pairs.size()), std::min(producers, consumers));
    const auto lent_of = [&](std::size_t gpu) { return of[gpu] ? of[gpu]->lent_mb : 0; };
    for (std::size_t p = 0; p < spare.size(); ++p) {
      for (std::size_t c = 0; c < spare.size(); ++c) {
        if (spare[p] <= 0 || spare[c] >= 0) continue;
        const std::int64_t lent = std::min(spare[p], -spare[c]);
        ASSERT_FALSE(lent > lent_of(p) && lent > lent_of(c)) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
