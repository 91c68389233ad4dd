#include "scheduler/paging_costs.h"

#include <gtest/gtest.h>

#include "scheduler/block_pager.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

int loads_of(PagingCosts& costs, int choices) {
  int loads = 0;
  for (int i = 0; i < choices; ++i) loads += costs.choose(false) == PagingChoice::kLoad ? 1 : 0;
  return loads;
}

TEST(PagingCosts, LoadsUntilBothAreKnown) {
  PagingCosts costs;
  EXPECT_EQ(costs.choose(true), PagingChoice::kLoad);
  costs.note_load(1000, microseconds(1'000'000));
  EXPECT_EQ(costs.choose(true), PagingChoice::kLoad);
  costs.note_chunks(PagingCosts::kKnown - 1, microseconds(1));
  EXPECT_EQ(costs.choose(true), PagingChoice::kLoad);
  costs.note_chunks(1000, Duration(0));  // a clock that stands still
  EXPECT_EQ(costs.choose(true), PagingChoice::kLoad);
  costs.note_chunks(1, microseconds(1));
  EXPECT_EQ(costs.choose(true), PagingChoice::kCompute);
}

TEST(PagingCosts, NearlyEqualSidesMeet) {
  const auto choice = [](int load_us, bool may_meet) {
    PagingCosts costs;
    costs.note_chunks(1000, microseconds(12'000));
    costs.note_load(1000, microseconds(load_us));
    return costs.choose(may_meet);
  };
  EXPECT_EQ(choice(3'000, true), PagingChoice::kLoad);
  EXPECT_EQ(choice(3'001, true), PagingChoice::kMeet);
  EXPECT_EQ(choice(48'000, true), PagingChoice::kMeet);
  EXPECT_EQ(choice(48'001, true), PagingChoice::kCompute);
  EXPECT_EQ(choice(12'000, false), PagingChoice::kLoad);
  EXPECT_EQ(choice(12'001, false), PagingChoice::kCompute);
}

TEST(PagingCosts, NoSequenceWaitsForTheRetryOfASlowTier) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(1000, microseconds(1'000'000));
  int met = 0;
  for (int i = 0; i < 2 * PagingCosts::kRetry; ++i) {
    const PagingChoice choice = costs.choose(true);
    EXPECT_NE(choice, PagingChoice::kLoad);
    met += choice == PagingChoice::kMeet ? 1 : 0;
  }
  EXPECT_EQ(met, 2);
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
  EXPECT_EQ(costs.choose(false), PagingChoice::kCompute);
  for (int i = 0; i < 20; ++i) costs.note_load(4000, microseconds(400));
  EXPECT_EQ(costs.choose(false), PagingChoice::kLoad);
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
