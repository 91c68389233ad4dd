// How a step's attention is cut: every key of every query in one part, at the ends of spans, within
// the room that attention_plan_size() gives.
#include "device/cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "device/cpu/kernels/kernel_table.h"

namespace sluice {
namespace {

constexpr std::int32_t kSpan = kernels::kAttentionSpan;

class AttentionPlanTest : public testing::Test {
 protected:
  // Rows of (context, query).
  void plan(AttentionPlanLimits limits, const std::vector<std::pair<int, int>>& rows, int threads) {
    limits_ = limits;
    starts_ = {0};
    lengths_.clear();
    for (const auto& [context, query] : rows) {
      starts_.push_back(starts_.back() + query);
      lengths_.push_back(context + query);
    }
    size_ = attention_plan_size(limits);
    memory_.assign(static_cast<std::size_t>(size_.plan_bytes / 8 + 1), -1);
    params_ = {.limits = limits,
               .cu_seqlens_q = starts_.data(),
               .seq_lens = lengths_.data(),
               .num_seqs = static_cast<std::int32_t>(rows.size()),
               .plan = memory_.data()};
    used_ = write_attention_plan(params_, threads);
  }
  const AttentionPlan& header() const {
    return *reinterpret_cast<const AttentionPlan*>(memory_.data());
  }
  std::vector<AttentionItem> items() const {
    return {header().items, header().items + header().num_items};
  }

  void check() const {
    ASSERT_LE(used_, size_.plan_bytes);
    ASSERT_LE(header().partials_offset, size_.device_bytes);
    // [row, first query] to the parts, in order of keys.
    std::map<std::pair<int, int>, std::vector<AttentionItem>> tiles;
    for (const AttentionItem& item : items()) tiles[{item.seq, item.first_query}].push_back(item);
    std::vector<int> queries(lengths_.size(), 0);
    std::int64_t keys = 0;
    std::int64_t partials = 0;
    std::int32_t counters = 0;
    for (auto& [tile, parts] : tiles) {
      const auto [seq, first] = tile;
      const auto row = static_cast<std::size_t>(seq);
      ASSERT_EQ(first, queries[row]) << "queries follow one another";
      queries[row] += parts.front().num_queries;
      std::ranges::sort(parts, {}, &AttentionItem::first_key);
      const int context = lengths_[row] - (starts_[row + 1] - starts_[row]);
      const int begin = limits_.window > 0 ? std::max(0, context + first - limits_.window + 1) : 0;
      EXPECT_EQ(parts.front().first_key, begin);
      EXPECT_EQ(parts.back().end_key, context + first + parts.front().num_queries);
      keys += parts.back().end_key - begin;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_LT(parts[i].first_key, parts[i].end_key);
        EXPECT_EQ(parts[i].is_cut(), parts.size() > 1);
        EXPECT_EQ(parts[i].first_counter, parts.front().first_counter);
        EXPECT_EQ(parts[i].first_partial, parts.front().first_partial);
        if (i == 0) continue;
        EXPECT_EQ(parts[i].first_key, parts[i - 1].end_key);
        EXPECT_EQ(parts[i].first_key % kSpan, 0);
      }
      if (parts.size() == 1) continue;
      const AttentionItem& cut = parts.front();
      EXPECT_EQ(cut.first_span, begin / kSpan);
      EXPECT_EQ(cut.num_spans, (parts.back().end_key - 1) / kSpan + 1 - cut.first_span);
      partials += std::int64_t{cut.num_spans} * cut.num_queries * limits_.num_heads;
      counters += AttentionHeads(limits_.num_heads, limits_.num_kv_heads).pieces;
    }
    for (std::size_t row = 0; row < queries.size(); ++row) {
      EXPECT_EQ(queries[row], starts_[row + 1] - starts_[row]);
    }
    EXPECT_EQ(header().total_keys, keys);
    EXPECT_LE(header().partials_offset + kernels::span_sums_floats(partials, limits_.head_dim) * 4,
              size_.device_bytes);
    EXPECT_EQ(used_, header().counters_offset + counters * 4);
    const auto* const counts = reinterpret_cast<const std::int32_t*>(
        reinterpret_cast<const std::byte*>(memory_.data()) + header().counters_offset);
    EXPECT_EQ(std::count(counts, counts + counters, 0), counters);
  }

  AttentionPlanLimits limits_;
  AttentionPlanParams params_;
  AttentionPlanSize size_;
  std::int64_t used_ = 0;

 private:
  std::vector<std::int32_t> starts_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> memory_;
};

constexpr AttentionPlanLimits kLimits = {.max_tokens = 600,
                                         .max_seqs = 20,
                                         .max_positions = 40'000,
                                         .num_heads = 16,
                                         .num_kv_heads = 8,
                                         .head_dim = 128};

TEST_F(AttentionPlanTest, ALongStreamIsCutForManyThreads) {
  // 8 KV heads are enough for 4 threads, two shares each.
  for (const auto& [threads, parts] : std::vector<std::pair<int, std::size_t>>{
           {1, 1}, {2, 1}, {4, 1}, {8, 2}, {32, 8}, {64, 16}}) {
    plan(kLimits, {{32 * kSpan - 1, 1}}, threads);
    EXPECT_EQ(items().size(), parts) << threads << " threads";
    check();
  }
  plan(kLimits, {{kSpan - 1, 1}}, 64);  // one span
  EXPECT_EQ(items().size(), 1U);
}

TEST_F(AttentionPlanTest, AStreamThatIsLongerThanTheOthersTogetherIsCutAlone) {
  std::vector<std::pair<int, int>> rows(19, {100, 1});
  rows.emplace_back(32 * kSpan - 1, 1);
  plan(kLimits, rows, 8);
  check();
  EXPECT_EQ(items().size(), 19U + 2U);
  EXPECT_TRUE(items().front().is_cut());
  EXPECT_FALSE(items().back().is_cut());
}

TEST_F(AttentionPlanTest, EnoughEqualStreamsAreNotCut) {
  plan(kLimits, std::vector<std::pair<int, int>>(16, {4 * kSpan, 1}), 64);
  check();
  EXPECT_EQ(items().size(), 16U);
}

TEST_F(AttentionPlanTest, AWindowIsCutAtTheEndsOfSpans) {
  AttentionPlanLimits limits = kLimits;
  limits.window = 3 * kSpan;
  plan(limits, {{20 * kSpan + 7, 1}}, 64);
  check();
  EXPECT_EQ(items().size(), 4U);  // two whole spans, and some of a third and a fourth
}

TEST_F(AttentionPlanTest, ItemsWithoutRoomForPartialResultsStayWhole) {
  AttentionPlanLimits limits = kLimits;
  limits.max_positions = 2 * kSpan;
  // A chunk of 500 would need more than 500 spans of each head.
  plan(limits, {{2 * kSpan - 500, 500}}, 64);
  check();
  for (const AttentionItem& item : items()) EXPECT_LE(item.num_queries, 64);
  limits.max_positions = kSpan;
  plan(limits, {{kSpan - 10, 10}}, 64);
  check();
  EXPECT_EQ(size_.plan_bytes, size_.device_bytes);
}

TEST_F(AttentionPlanTest, AnyStepIsCutWithinItsLimits) {
  constexpr std::int32_t kHeads[][2] = {{1, 1}, {16, 8}, {32, 8}, {64, 1}, {300, 2}};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const auto below = [&](std::int32_t n) {
      return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(n)));
    };
    AttentionPlanLimits limits;
    limits.max_positions = 1 + below(50 * kSpan);
    limits.num_heads = kHeads[seed % 5][0];
    limits.num_kv_heads = kHeads[seed % 5][1];
    limits.head_dim = 8 + 8 * below(20);
    if (rng.below(3) == 0) limits.window = 1 + below(4 * kSpan);
    std::vector<std::pair<int, int>> rows(rng.below(40));
    for (auto& [context, query] : rows) {
      const std::int32_t length = 1 + below(limits.max_positions);
      query = rng.below(2) == 0 ? 1 : 1 + below(std::min(length, 700));
      context = length - query;
      limits.max_tokens += query;
    }
    limits.max_seqs = static_cast<std::int32_t>(rows.size());
    plan(limits, rows, 1 << below(9));
    check();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice
