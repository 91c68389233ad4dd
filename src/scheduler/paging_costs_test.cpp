#include "scheduler/paging_costs.h"

#include <gtest/gtest.h>

#include "scheduler/block_pager.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

int loads_of(PagingCosts& costs, int choices) {
  int loads = 0;
  for (int i = 0; i < choices; ++i) loads += costs.choose_load() ? 1 : 0;
  return loads;
}

TEST(PagingCosts, LoadsUntilBothAreKnown) {
  PagingCosts costs;
  EXPECT_TRUE(costs.choose_load());
  costs.note_load(1000, microseconds(1'000'000));
  EXPECT_TRUE(costs.choose_load());
  costs.note_chunks(PagingCosts::kKnown - 1, microseconds(1));
  EXPECT_TRUE(costs.choose_load());
  costs.note_chunks(1000, Duration(0));  // a clock that stands still
  EXPECT_TRUE(costs.choose_load());
  costs.note_chunks(1, microseconds(1));
  EXPECT_FALSE(costs.choose_load());
}

TEST(PagingCosts, TheFasterWinsAndTheOtherIsTriedAgain) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(1000, microseconds(999));
  EXPECT_EQ(loads_of(costs, 100), 100);
  costs.note_load(1000, microseconds(3000));
  EXPECT_EQ(loads_of(costs, 2 * PagingCosts::kRetry), 2);
}

TEST(PagingCosts, OldMovesFade) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(4000, microseconds(400'000));
  EXPECT_FALSE(costs.choose_load());
  for (int i = 0; i < 20; ++i) costs.note_load(4000, microseconds(400));
  EXPECT_TRUE(costs.choose_load());
}

TEST(PagingCosts, ASlowTierIsLeftAloneWithTheSameTokens) {
  HarnessOptions options;
  options.tier_pages = 64;
  options.num_blocks = 40;  // of 4 tokens
  options.token_budget = 128;
  SchedulerHarness h(options);
  h.executor.hold_transfers();
  const auto run = [&](Sequence& sequence, Duration load_time) {
    while (sequence.state != SequenceState::kFinished) {
      h.now = h.now + microseconds(1);
      h.plan();
      if (h.committed < h.planned) {
        h.now = h.now + std::chrono::milliseconds(10);
        h.commit();
      }
      if (!h.executor.transfers().empty()) h.now = h.now + load_time;
      while (!h.executor.transfers().empty()) h.executor.end_transfer(0, false);
    }
    EXPECT_EQ(sequence.tokens, h.expected(sequence).tokens);
  };
  for (int i = 0; i < 40; ++i) run(h.add(100, 1, 100 + 50 * (i % 2)), std::chrono::seconds(1));
  const std::int64_t loaded = h.scheduler.paging_stats().loaded_blocks;
  EXPECT_GT(loaded, 0);
  EXPECT_GT(h.scheduler.paging_stats().computed_instead, 0);
  // A step computes 100 tokens or fewer in 10 ms.
  const PagingStats& paging = h.scheduler.paging_stats();
  EXPECT_GE(paging.saved_ns, 1e5 * static_cast<double>(paging.hit_tokens));
  EXPECT_LE(paging.saved_ns, 1e7 * static_cast<double>(paging.hit_tokens));
  // Loads that take no time win again after a retry.
  for (int i = 0; i < 400; ++i) run(h.add(100, 1, 100 + 50 * (i % 2)), Duration(0));
  const std::int64_t before = h.scheduler.paging_stats().computed_instead;
  for (int i = 0; i < 20; ++i) run(h.add(100, 1, 100 + 50 * (i % 2)), Duration(0));
  EXPECT_EQ(h.scheduler.paging_stats().computed_instead, before);
}

}  // namespace
}  // namespace sluice
