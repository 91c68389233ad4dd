#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"

namespace sluice {
namespace {

Hash128 name(std::uint64_t i) { return {i, i * 0x9E3779B97F4A7C15ULL}; }

std::vector<Hash128> names(std::uint64_t count) {
  std::vector<Hash128> all;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(name(i + 1));
  return all;
}

TEST(PrefixCache, FindsByHashAndGroup) {
  PrefixCache cache(10);
  cache.insert(3, name(1), 0);
  cache.insert(4, name(1), 1);
  EXPECT_EQ(cache.find(name(1), 0), 3);
  EXPECT_EQ(cache.find(name(1), 1), 4);
  EXPECT_EQ(cache.find(name(2), 0), kNullBlock);
  cache.erase(3);
  EXPECT_EQ(cache.find(name(1), 0), kNullBlock);
  EXPECT_EQ(cache.find(name(1), 1), 4);
  EXPECT_FALSE(cache.holds(3));
}

TEST(PrefixCache, ANameMayGoToAnotherBlock) {
  PrefixCache cache(10);
  cache.insert(3, name(1), 0);
  cache.erase(3);
  cache.insert(5, name(1), 0);
  EXPECT_EQ(cache.find(name(1), 0), 5);
  cache.check_integrity();
}

std::int32_t match(const PrefixCache& cache, const std::vector<Hash128>& prompt,
                   std::int32_t window, std::int32_t block_size, std::int32_t limit) {
  return match_blocks(window, block_size, limit, [&](std::int32_t block) {
    return cache.find(prompt[static_cast<std::size_t>(block)], 0) != kNullBlock;
  });
}

TEST(PrefixCache, FullGroupsMatchFromTheFront) {
  PrefixCache cache(10);
  const std::vector<Hash128> prompt = names(5);
  for (const BlockId id : {1, 2, 4}) cache.insert(id, prompt[static_cast<std::size_t>(id - 1)], 0);
  EXPECT_EQ(match(cache, prompt, 0, 4, 5), 2);  // the third is missing
  EXPECT_EQ(match(cache, prompt, 0, 4, 1), 1);
}

TEST(PrefixCache, SlidingGroupsNeedOnlyTheWindow) {
  PrefixCache cache(10);
  const std::vector<Hash128> prompt = names(6);
  cache.insert(4, prompt[3], 0);
  cache.insert(5, prompt[4], 0);
  // After 5 blocks of 4 tokens a window of 8 sees positions 13 to 19: blocks 3 and 4.
  EXPECT_EQ(match(cache, prompt, 8, 4, 6), 5);
  // A window of 10 sees position 11 too, in block 2, which is missing. Nothing shorter fits.
  EXPECT_EQ(match(cache, prompt, 10, 4, 6), 0);
  cache.insert(1, prompt[0], 0);
  EXPECT_EQ(match(cache, prompt, 10, 4, 6), 1);  // near the front less is needed
  // A window of one token sees only itself.
  EXPECT_EQ(match(cache, prompt, 1, 4, 6), 6);
}

TEST(PrefixCache, EqualsAMapUnderRandomUse) {
  SplitMix64 rng(11);
  PrefixCache cache(64);
  std::map<BlockId, std::pair<Hash128, std::int32_t>> model;
  for (int i = 0; i < 20000; ++i) {
    const auto id = static_cast<BlockId>(1 + rng.below(63));
    if (cache.holds(id)) {
      cache.erase(id);
      model.erase(id);
    } else {
      // Few different low words: long probe sequences, and names that another block has.
      const Hash128 hash{rng.below(3), rng.below(8)};
      const auto group = static_cast<std::int32_t>(rng.below(2));
      if (const BlockId other = cache.find(hash, group); other != kNullBlock) {
        cache.erase(other);
        ASSERT_EQ(model.erase(other), 1U);
      }
      cache.insert(id, hash, group);
      model[id] = {hash, group};
    }
    cache.check_integrity();
    const Hash128 probe{rng.below(3), rng.below(8)};
    const BlockId found = cache.find(probe, 1);
    const bool expected = std::any_of(model.begin(), model.end(), [&](const auto& entry) {
      return entry.second == std::pair(probe, std::int32_t{1});
    });
    ASSERT_EQ(found != kNullBlock, expected);
    if (expected) {
      ASSERT_EQ(model.at(found), std::pair(probe, std::int32_t{1}));
    }
    ASSERT_EQ(cache.size(), static_cast<std::int32_t>(model.size()));
  }
}

}  // namespace
}  // namespace sluice
