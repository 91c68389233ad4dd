// Moves of blocks to and from a KvTier, for tests: one at a time, each with its end. Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "offload/kv_tier.h"

namespace sluice::test {

// Bytes that cannot be compressed, the same ones for the same seed.
inline std::vector<std::byte> random_block(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> block(bytes);
  SplitMix64 random(seed);
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(&block[i], &word, std::min(sizeof(word), bytes - i));
  }
  return block;
}

// Waits for the end of the only move under way, which has this id.
inline Status end_of_move(KvTier& tier, std::uint64_t id) {
  std::vector<TierMove> ended;
  while (ended.empty()) {
    tier.wait(std::chrono::seconds(1));
    tier.poll(ended);
  }
  EXPECT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, id);
  return std::move(ended[0].status);
}

inline Status save_block(KvTier& tier, const TierPage& page, std::span<const std::byte> block) {
  tier.save(1, page, block);
  return end_of_move(tier, 1);
}

inline Status load_block(KvTier& tier, const TierPage& page, std::span<std::byte> block) {
  tier.load(2, page, block);
  return end_of_move(tier, 2);
}

// Loads into a block of its own, and expects exactly these bytes if the load succeeds.
inline Status load_exactly(KvTier& tier, const TierPage& page,
                           std::span<const std::byte> expected) {
  std::vector<std::byte> block(expected.size());
  Status status = load_block(tier, page, block);
  if (status) {
    EXPECT_TRUE(std::ranges::equal(block, expected)) << "page " << page.page;
  }
  return status;
}

}  // namespace sluice::test
