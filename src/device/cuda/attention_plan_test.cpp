#include "device/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"

namespace sluice::cuda {
namespace {

struct StepRow {
  std::int32_t context;
  std::int32_t query;
};

AttentionPlanLimits limits_of(std::int32_t tokens, std::int32_t rows, std::int32_t positions) {
  return {tokens, rows, positions, 32, 8, 128, 0};
}

// A plan as the device gets it: bytes that no plan has written are 0xFF.
struct Plan {
  Plan(const AttentionPlanLimits& given, const std::vector<StepRow>& rows, std::int32_t blocks)
      : limits(given), size(attention_plan_size(limits)) {
    bytes.resize(static_cast<std::size_t>(size.plan_bytes), std::byte{0xFF});
    for (const StepRow& row : rows) {
      first_tokens.push_back(first_tokens.back() + row.query);
      lengths.push_back(row.context + row.query);
    }
    used = write_attention_plan({limits, first_tokens.data(), lengths.data(),
                                 static_cast<std::int32_t>(rows.size()), bytes.data()},
                                blocks);
    std::memcpy(&work, bytes.data(), sizeof(work));
    const auto* begin = reinterpret_cast<const AttentionTask*>(bytes.data() + work.tasks_offset);
    tasks.assign(begin, begin + work.num_tasks);
  }

  AttentionPlanLimits limits;
  AttentionPlanSize size;
  std::vector<std::byte> bytes;
  std::vector<std::int32_t> first_tokens = {0};
  std::vector<std::int32_t> lengths;
  std::int64_t used = 0;
  AttentionWork work;
  std::vector<AttentionTask> tasks;
};

// Each pair of the step with each span that it sees positions of, counted by who computes it.
using Coverage = std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, int>;

Coverage wanted_coverage(const AttentionPlanLimits& limits, const std::vector<StepRow>& rows) {
  const std::int32_t ratio = limits.num_heads / limits.num_kv_heads;
  Coverage wanted;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::int32_t pair = 0; pair < rows[r].query * ratio; ++pair) {
      const std::int32_t last = rows[r].context + pair / ratio;
      const std::int32_t first = limits.window > 0 ? std::max(0, last - limits.window + 1) : 0;
      for (std::int32_t span = first / kSpanKeys; span <= last / kSpanKeys; ++span) {
        wanted[{static_cast<std::int32_t>(r), pair, span}] = 1;
      }
    }
  }
  return wanted;
}

void expect_covered(const Plan& plan, const std::vector<StepRow>& rows) {
  Coverage covered;
  for (const AttentionTask& task : plan.tasks) {
    ASSERT_GE(task.num_pairs, 1);
    ASSERT_LE(task.num_pairs, kWideRows);
    ASSERT_EQ(task.first_token, plan.first_tokens[static_cast<std::size_t>(task.row)]);
    ASSERT_EQ(task.first_position, rows[static_cast<std::size_t>(task.row)].context);
    ASSERT_GE(task.first_span, task.tile_first_span);
    ASSERT_LE(task.first_span + task.num_spans, task.tile_first_span + task.tile_spans);
    for (std::int32_t pair = task.first_pair; pair < task.first_pair + task.num_pairs; ++pair) {
      for (std::int32_t i = 0; i < task.num_spans; ++i) {
        ++covered[{task.row, pair, task.first_span + i}];
      }
    }
  }
  for (const auto& [place, count] : wanted_coverage(plan.limits, rows)) {
    ASSERT_EQ(covered[place], count) << "row " << std::get<0>(place) << ", pair "
                                     << std::get<1>(place) << ", span " << std::get<2>(place);
  }
  // A tile may see what one of its pairs does not; nothing is computed twice.
  for (const auto& [place, count] : covered) ASSERT_EQ(count, 1);
}

// Cut tiles: one span a task, counters and partial rows of their own, within the plan's bytes.
void expect_places(const Plan& plan) {
  const std::int32_t groups = plan.limits.num_kv_heads;
  std::map<std::int32_t, std::int32_t> tasks_of_counter;
  std::map<std::int32_t, std::int64_t> end_of_partials;
  for (const AttentionTask& task : plan.tasks) {
    ASSERT_EQ(task.first_partial >= 0, task.num_spans < task.tile_spans);
    ASSERT_EQ(task.first_partial >= 0, task.first_counter >= 0);
    if (task.first_partial < 0) continue;
    ASSERT_EQ(task.num_spans, 1);
    ++tasks_of_counter[task.first_counter];
    end_of_partials[task.first_partial] =
        task.first_partial + std::int64_t{task.num_pairs} * task.tile_spans * groups;
    ASSERT_EQ(task.first_counter % groups, 0);
    const std::int64_t counters_end =
        plan.work.counters_offset + (std::int64_t{task.first_counter} + groups) * 4;
    ASSERT_LE(counters_end, plan.used);
    for (std::int32_t g = 0; g < groups; ++g) {
      std::int32_t counter = -1;
      std::memcpy(&counter,
                  plan.bytes.data() + plan.work.counters_offset + (task.first_counter + g) * 4,
                  sizeof(counter));
      ASSERT_EQ(counter, 0);
    }
  }
  std::int64_t end = 0;
  for (const auto& [first, past] : end_of_partials) {
    ASSERT_GE(first, end) << "partial results overlap";
    end = past;
  }
  for (const AttentionTask& task : plan.tasks) {
    if (task.first_counter < 0) continue;
    ASSERT_EQ(tasks_of_counter[task.first_counter], task.tile_spans);
  }
  ASSERT_LE(plan.used, plan.size.plan_bytes);
  ASSERT_GE(plan.work.sums_offset, plan.used);
  const std::int64_t sums_bytes = end * plan.limits.head_dim * 4;
  ASSERT_LE(plan.work.sums_offset + sums_bytes, plan.work.weights_offset);
  ASSERT_LE(plan.work.weights_offset + end * 8, plan.size.device_bytes);
  for (const std::int64_t offset : {plan.work.tasks_offset, plan.work.counters_offset,
                                    plan.work.sums_offset, plan.work.weights_offset}) {
    ASSERT_EQ(offset % 16, 0);
  }
}

void expect_sound(const Plan& plan, const std::vector<StepRow>& rows) {
  expect_covered(plan, rows);
  if (!testing::Test::HasFatalFailure()) expect_places(plan);
}

std::int64_t count_cut(const Plan& plan) {
  return std::count_if(plan.tasks.begin(), plan.tasks.end(),
                       [](const AttentionTask& task) { return task.first_partial >= 0; });
}

TEST(AttentionPlan, ADecodeAloneIsCutIntoSpans) {
  const std::vector<StepRow> rows = {{8000, 1}};
  const Plan plan(limits_of(1, 1, 9000), rows, 264);
  expect_sound(plan, rows);
  EXPECT_EQ(plan.work.num_tasks, 16);
  EXPECT_EQ(plan.tasks.front().num_pairs, 4);
  EXPECT_EQ(plan.tasks.back().first_span, 15) << "the last span is not full: it goes last";
}

TEST(AttentionPlan, ManyDecodesOfLikeLengthAreNotCut) {
  const std::vector<StepRow> rows(256, {1800, 1});
  const Plan plan(limits_of(256, 256, 4096), rows, 264);
  expect_sound(plan, rows);
  EXPECT_EQ(plan.work.num_tasks, 256);
  EXPECT_EQ(count_cut(plan), 0);
}

TEST(AttentionPlan, TwoTilesABlockAreAsGoodAsTheirSpans) {
  const std::vector<StepRow> rows(64, {1024, 1});
  const Plan plan(limits_of(64, 64, 4096), rows, 264);
  expect_sound(plan, rows);
  EXPECT_EQ(count_cut(plan), 0);
  const std::vector<StepRow> few(16, {1024, 1});
  const Plan cut(limits_of(64, 64, 4096), few, 264);
  expect_sound(cut, few);
  EXPECT_EQ(count_cut(cut), 16 * 3) << "half of the blocks would have nothing to do";
}

TEST(AttentionPlan, AmongManyShortOnesTheLongOneIsCut) {
  std::vector<StepRow> rows(63, {300, 1});
  rows.push_back({30000, 1});
  const Plan plan(limits_of(64, 64, 32768), rows, 264);
  expect_sound(plan, rows);
  EXPECT_EQ(count_cut(plan), 59);
  EXPECT_EQ(plan.tasks.front().row, 63) << "longest first";
}

TEST(AttentionPlan, TilesOfAChunk) {
  // 100 tokens of 4 heads a KV head: six tiles of 64 pairs and one of 16.
  const std::vector<StepRow> rows = {{50, 100}};
  const Plan plan(limits_of(128, 2, 512), rows, 264);
  expect_sound(plan, rows);
  EXPECT_EQ(plan.work.num_tasks, 7);
  EXPECT_EQ(std::count_if(plan.tasks.begin(), plan.tasks.end(),
                          [](const AttentionTask& t) { return t.num_pairs == kWideRows; }),
            6);
  EXPECT_EQ(plan.size.device_bytes, plan.size.plan_bytes) << "one span: no partial results";
}

TEST(AttentionPlan, AWindowLeavesOutSpansInFrontOfIt) {
  AttentionPlanLimits limits = limits_of(1, 1, 20000);
  limits.window = 512;
  const std::vector<StepRow> rows = {{10500, 1}};
  const Plan plan(limits, rows, 264);
  expect_sound(plan, rows);
  EXPECT_EQ(plan.tasks.front().tile_first_span, 19);
  EXPECT_EQ(plan.tasks.front().tile_spans, 2);
  EXPECT_LT(plan.size.device_bytes, attention_plan_size(limits_of(1, 1, 20000)).device_bytes);
}

TEST(AttentionPlan, NoRowsNoTasks) {
  const Plan plan(limits_of(4, 4, 2000), {}, 264);
  EXPECT_EQ(plan.work.num_tasks, 0);
  const Plan empty_rows(limits_of(4, 4, 2000), {{10, 0}, {0, 0}}, 264);
  EXPECT_EQ(empty_rows.work.num_tasks, 0);
}

TEST(AttentionPlan, WherePartialResultsHaveNoRoomTheShorterTilesStayWhole) {
  // All cut would be 256 rows x 32 heads x 200 spans x 520 bytes, ten times what there may be.
  std::vector<StepRow> rows(255, {100000, 1});
  rows.push_back({127000, 1});
  const Plan plan(limits_of(256, 256, 128000), rows, 100000);
  expect_sound(plan, rows);
  EXPECT_LE(plan.size.device_bytes - plan.size.plan_bytes, (std::int64_t{64} << 20) + 64);
  EXPECT_EQ(count_cut(plan), 0) << "where one length fits no more, none of it is cut";
  std::vector<StepRow> uneven(255, {20000, 1});
  uneven.push_back({127000, 1});
  const Plan second(limits_of(256, 256, 128000), uneven, 100000);
  expect_sound(second, uneven);
  EXPECT_EQ(count_cut(second), 249);
}

// Any legal step of any model: all is covered once, and the bytes suffice.
TEST(AttentionPlan, EveryStepWithinTheLimitsHasRoom) {
  constexpr std::int32_t kRatios[] = {1, 2, 4, 8, 71};
  constexpr std::int32_t kWindows[] = {0, 0, 1, 100, 1024, 3000};
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 rng(seed);
    const auto below = [&](std::int32_t n) {
      return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(n)));
    };
    AttentionPlanLimits limits;
    limits.max_tokens = 1 + below(seed % 3 == 0 ? 8 : 300);
    limits.max_seqs = 1 + below(20);
    limits.max_positions = 1 + below(seed % 2 == 0 ? 2000 : 9000);
    limits.num_kv_heads = 1 + below(4);
    limits.num_heads = limits.num_kv_heads * kRatios[below(5)];
    limits.head_dim = 8 * (1 + below(32));
    limits.window = kWindows[below(6)];
    std::vector<StepRow> rows;
    std::int32_t tokens = 0;
    const bool full = rng.below(2) == 0;  // as much as the limits allow
    while (static_cast<std::int32_t>(rows.size()) < limits.max_seqs && tokens < limits.max_tokens) {
      if (!full && rng.below(8) == 0) break;
      const std::int32_t most = std::min(limits.max_tokens - tokens, limits.max_positions);
      const std::int32_t query = rng.below(2) == 0 ? 1 : below(most + 1);
      const std::int32_t room = limits.max_positions - query;
      rows.push_back({full ? room : below(room + 1), query});
      tokens += query;
    }
    const std::int32_t blocks = rng.below(4) == 0 ? 1 << 20 : 1 + below(300);
    expect_sound(Plan(limits, rows, blocks), rows);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionPlanDeathTest, AStepBeyondTheLimitsIsOurBug) {
  EXPECT_DEATH(Plan(limits_of(4, 4, 100), {{90, 11}}, 8), "CHECK");
  EXPECT_DEATH(Plan(limits_of(4, 1, 100), {{9, 1}, {9, 1}}, 8), "CHECK");
}

}  // namespace
}  // namespace sluice::cuda
