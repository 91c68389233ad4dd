#include "device/lora_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace sluice {
namespace {

struct GroupedTokens {
  std::vector<std::int32_t> tokens;
  std::vector<LoraSegment> segments;
};

GroupedTokens group_tokens(const std::vector<std::int32_t>& slots, std::int32_t num_slots) {
  const auto count = static_cast<std::int32_t>(slots.size());
  GroupedTokens result;
  result.tokens.assign(slots.size(), -1);
  result.segments.resize(static_cast<std::size_t>(max_lora_segments(count, num_slots)));
  LoraGrouping grouping(num_slots);
  const std::int32_t segments = grouping.write(slots, result.tokens, result.segments);
  result.segments.resize(static_cast<std::size_t>(segments));
  return result;
}

TEST(LoraGrouping, ListsTokensBySlotAndLeavesOutTheOthers) {
  const GroupedTokens grouped = group_tokens({2, -1, 0, 2, -1, 0, 0}, 3);
  EXPECT_EQ(grouped.tokens, (std::vector<std::int32_t>{2, 5, 6, 0, 3, -1, -1}));
  ASSERT_EQ(grouped.segments.size(), 2U);
  EXPECT_EQ(grouped.segments[0].slot, 0);
  EXPECT_EQ(grouped.segments[0].first, 0);
  EXPECT_EQ(grouped.segments[0].count, 3);
  EXPECT_EQ(grouped.segments[1].slot, 2);
  EXPECT_EQ(grouped.segments[1].first, 3);
  EXPECT_EQ(grouped.segments[1].count, 2);
}

TEST(LoraGrouping, NoTokenHasAnAdapter) {
  EXPECT_TRUE(group_tokens({-1, -1}, 4).segments.empty());
  EXPECT_TRUE(group_tokens({}, 4).segments.empty());
}

TEST(LoraGrouping, LongChunksAreCut) {
  const GroupedTokens grouped = group_tokens(std::vector<std::int32_t>(150, 1), 2);
  ASSERT_EQ(grouped.segments.size(), 3U);
  EXPECT_EQ(grouped.segments[0].count, 64);
  EXPECT_EQ(grouped.segments[2].first, 128);
  EXPECT_EQ(grouped.segments[2].count, 22);
}

TEST(LoraGrouping, EveryTokenIsInOneSegmentOfItsSlot) {
  SplitMix64 rng(1);
  for (int round = 0; round < 300; ++round) {
    const auto num_slots = static_cast<std::int32_t>(1 + rng.below(40));
    std::vector<std::int32_t> slots(rng.below(400));
    for (std::int32_t& slot : slots) {
      slot = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(num_slots) + 1)) - 1;
    }
    const GroupedTokens grouped = group_tokens(slots, num_slots);
    std::vector<std::int32_t> found(slots.size(), -1);
    std::int32_t next = 0;
    for (const LoraSegment& segment : grouped.segments) {
      EXPECT_EQ(segment.first, next);
      ASSERT_TRUE(segment.count >= 1 && segment.count <= LoraSegment::kMaxTokens);
      for (std::int32_t i = 0; i < segment.count; ++i, ++next) {
        found.at(static_cast<std::size_t>(grouped.tokens[static_cast<std::size_t>(next)])) =
            segment.slot;
      }
    }
    EXPECT_EQ(found, slots);
  }
}

}  // namespace
}  // namespace sluice
