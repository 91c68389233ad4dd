// The tier in RAM: what is saved comes back or is a miss, and a gain that is too small ends it.
#include "offload/ram_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/support/tier_moves.h"

namespace sluice {
namespace {

constexpr std::uint64_t kRamBlock = 8192;
using RamBytes = std::vector<std::byte>;

// Floats with exponents of four values, or noise.
RamBytes ram_block(std::uint64_t seed, bool noise = false) {
  RamBytes bytes(kRamBlock);
  SplitMix64 random(seed);
  for (std::size_t i = 0; i < kRamBlock; i += 2) {
    const std::uint64_t exponent = noise ? random.below(256) : 120 + random.below(4);
    const auto bits =
        static_cast<std::uint16_t>((random.below(2) << 15) | (exponent << 7) | random.below(128));
    std::memcpy(&bytes[i], &bits, 2);
  }
  return bytes;
}

TierPage ram_page(std::int32_t page, std::uint64_t seed) {
  return {.page = page, .group = 0, .name = {7, seed}, .tenant = {}};
}

class RamTierTest : public testing::Test {
 protected:
  void open(RamTier::Options options) {
    options.block_bytes = kRamBlock;
    auto tier = RamTier::open(options);
    ASSERT_TRUE(tier) << tier.error().message;
    tier_ = *std::move(tier);
  }
  Status save(std::int32_t page, std::uint64_t seed, bool noise = false) {
    return test::save_block(*tier_, ram_page(page, seed), ram_block(seed, noise));
  }
  bool load(std::int32_t page, std::uint64_t seed, bool noise = false) {
    tier_->touch(page);
    const Status status = test::load_exactly(*tier_, ram_page(page, seed), ram_block(seed, noise));
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kNotFound);
    }
    return status.has_value();
  }

  std::unique_ptr<RamTier> tier_;
  std::uint64_t ids_ = 0;
};

TEST_F(RamTierTest, KeepsMorePackedBlocksThanWholeOnes) {
  open({.max_bytes = 8 * kRamBlock, .packs = true});
  EXPECT_EQ(tier_->num_pages(), 12);
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(save(i, 10 + static_cast<std::uint64_t>(i)));
  EXPECT_LE(tier_->memory_bytes(), static_cast<std::int64_t>(8 * kRamBlock));
  int found = 0;
  for (int i = 0; i < 12; ++i) found += load(i, 10 + static_cast<std::uint64_t>(i)) ? 1 : 0;
  EXPECT_GE(found, 11) << "2 to 3 bits of 8 for the exponents: 1.45";
  EXPECT_FALSE(load(3, 99));  // the page holds another block
  tier_->erase(5);
  EXPECT_FALSE(load(5, 15));
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(60)));
}

TEST_F(RamTierTest, ThePageThatWasUsedLeastRecentlyMakesRoom) {
  open({.max_bytes = 4 * kRamBlock, .packs = false});
  EXPECT_EQ(tier_->num_pages(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, static_cast<std::uint64_t>(i), true));
  EXPECT_EQ(tier_->memory_bytes(), static_cast<std::int64_t>(4 * kRamBlock));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(load(i, static_cast<std::uint64_t>(i), true));
  EXPECT_TRUE(tier_->accepts_saves());

  open({.max_bytes = 4 * kRamBlock, .packs = true, .sample_blocks = 1000});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(save(i, static_cast<std::uint64_t>(i), true));
  EXPECT_TRUE(load(0, 0, true));
  EXPECT_TRUE(save(3, 3, true));  // a packed block of noise is larger than a block
  EXPECT_TRUE(load(0, 0, true));
  EXPECT_FALSE(load(1, 1, true));
  EXPECT_TRUE(load(3, 3, true));
  std::vector<TierPage> lost;
  tier_->take_lost(lost);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].page, 1);
  EXPECT_EQ(lost[0].name, ram_page(1, 1).name);
  EXPECT_EQ(lost[0].group, ram_page(1, 1).group);
  tier_->take_lost(lost);
  EXPECT_EQ(lost.size(), 1U) << "each is reported once";
}

TEST_F(RamTierTest, StopsWhenPackingDoesNotGain) {
  open({.max_bytes = 64 * kRamBlock, .packs = true, .sample_blocks = 4, .window_blocks = 8});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(save(i, static_cast<std::uint64_t>(i), true));
  EXPECT_TRUE(tier_->accepts_saves());
  EXPECT_GT(tier_->memory_bytes(), 0);
  EXPECT_FALSE(save(3, 3, true)) << "the sample is full";
  EXPECT_FALSE(tier_->accepts_saves());
  EXPECT_EQ(tier_->memory_bytes(), 0);
  std::vector<TierPage> lost;
  tier_->take_lost(lost);
  EXPECT_EQ(lost.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(load(i, static_cast<std::uint64_t>(i), true));
  EXPECT_FALSE(save(4, 4));
  tier_->erase(2);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("4 blocks were packed to 1/0.9"));
  EXPECT_THAT(log, testing::HasSubstr("off until the next start"));
}

TEST_F(RamTierTest, LooksAgainAfterEachWindow) {
  open({.max_bytes = 64 * kRamBlock, .packs = true, .sample_blocks = 4, .window_blocks = 8});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(save(i, static_cast<std::uint64_t>(i)));
  EXPECT_TRUE(tier_->accepts_saves());
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(save(i, static_cast<std::uint64_t>(i), true));
  EXPECT_TRUE(tier_->accepts_saves());
  EXPECT_FALSE(save(7, 7, true));
  EXPECT_FALSE(tier_->accepts_saves());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("4 blocks were packed to 1/1.4"));
  EXPECT_THAT(log, testing::HasSubstr("8 blocks were packed to 1/0.9"));
}

TEST_F(RamTierTest, RefusesASizeWithoutRoom) {
  const auto tier = RamTier::open({.max_bytes = kRamBlock - 1, .block_bytes = kRamBlock});
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().code, ErrorCode::kInvalidArgument);
}

// Moves of many pages under way, among touches and erasures by the caller's thread.
TEST_F(RamTierTest, ManyMovesAtOnceKeepEveryBlock) {
  open({.max_bytes = 24 * kRamBlock, .packs = true});
  SplitMix64 random(5);
  struct Move {
    std::int32_t page = 0;
    std::uint64_t seed = 0;
    bool loads = false;
    RamBytes block;
  };
  std::map<std::uint64_t, Move> moves;
  std::map<std::int32_t, std::uint64_t> saved;  // by page: the seed of what was saved last
  std::map<std::int32_t, int> busy;
  std::int64_t loaded = 0;
  std::int64_t missed = 0;
  std::vector<TierPage> lost;
  std::vector<TierMove> ended;
  for (int step = 0; step < 4000; ++step) {
    const auto page = static_cast<std::int32_t>(random.below(36));
    if (moves.size() < 16 && busy[page] == 0) {
      const std::uint64_t kind = random.below(8);
      if (kind == 0) {
        tier_->erase(page);
        saved.erase(page);
      } else if (kind < 4 || !saved.contains(page)) {
        Move move{page, random.below(1 << 20), false, {}};
        move.block = ram_block(move.seed);
        saved[page] = move.seed;
        ++busy[page];
        Move& kept = moves[++ids_] = std::move(move);
        tier_->save(ids_, ram_page(page, kept.seed), kept.block);
      } else {
        ++busy[page];
        Move& kept = moves[++ids_] = {page, saved[page], true, RamBytes(kRamBlock)};
        tier_->touch(page);
        tier_->load(ids_, ram_page(page, kept.seed), kept.block);
      }
    }
    if (moves.size() >= 16) tier_->wait(std::chrono::seconds(1));
    ended.clear();
    tier_->poll(ended);
    for (const TierMove& end : ended) {
      const Move& move = moves.at(end.id);
      --busy[move.page];
      if (move.loads && end.status) {
        ++loaded;
        ASSERT_EQ(move.block, ram_block(move.seed));
      }
      // Only a block that made room after its load was asked for.
      if (move.loads && !end.status) {
        ASSERT_EQ(end.status.error().code, ErrorCode::kNotFound);
        ASSERT_FALSE(saved.contains(move.page) && saved[move.page] != move.seed);
        saved.erase(move.page);
        ++missed;
      }
      moves.erase(end.id);
    }
    lost.clear();
    tier_->take_lost(lost);
    for (const TierPage& page_lost : lost) {
      const auto found = saved.find(page_lost.page);
      if (found == saved.end() || busy[page_lost.page] > 0) continue;
      if (ram_page(page_lost.page, found->second).name == page_lost.name) saved.erase(found);
    }
  }
  EXPECT_GT(loaded, 300);
  EXPECT_LT(missed, loaded / 20) << "blocks that made room are reported";
  EXPECT_TRUE(tier_->flush(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace sluice
