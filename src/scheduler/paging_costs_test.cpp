#include "scheduler/paging_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "scheduler/block_pager.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::microseconds;

constexpr TierLevel kSlow = TierLevel::kSlow;
constexpr TierLevel kFast = TierLevel::kFast;

PagingWork work_of(std::int64_t slow, std::int64_t fast) {
  return {.loads = {slow, fast}, .computes = slow + fast};
}
const PagingWork kWork = work_of(100, 0);

int loads_of(PagingCosts& costs, int choices, const PagingWork& work = kWork) {
  int loads = 0;
  for (int i = 0; i < choices; ++i) {
    loads += costs.choose(work, false) == PagingChoice::kLoad ? 1 : 0;
  }
  return loads;
}

TEST(PagingCosts, LoadsUntilBothAreKnown) {
  PagingCosts costs;
  EXPECT_EQ(costs.choose(kWork, true), PagingChoice::kLoad);
  costs.note_load(kSlow, 1000, microseconds(1'000'000));
  EXPECT_EQ(costs.choose(kWork, true), PagingChoice::kLoad);
  costs.note_chunks(PagingCosts::kKnown - 1, microseconds(1));
  EXPECT_EQ(costs.choose(kWork, true), PagingChoice::kLoad);
  costs.note_chunks(1000, Duration(0));  // a clock that stands still
  EXPECT_EQ(costs.choose(kWork, true), PagingChoice::kLoad);
  costs.note_chunks(1, microseconds(1));
  EXPECT_EQ(costs.choose(kWork, true), PagingChoice::kCompute);
}

TEST(PagingCosts, NearlyEqualSidesMeet) {
  const auto choice = [](int load_us, bool may_meet) {
    PagingCosts costs;
    costs.note_chunks(1000, microseconds(12'000));
    costs.note_load(kSlow, 1000, microseconds(load_us));
    return costs.choose(kWork, may_meet);
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
  costs.note_load(kSlow, 1000, microseconds(1'000'000));
  int met = 0;
  for (int i = 0; i < 2 * PagingCosts::kRetry; ++i) {
    const PagingChoice choice = costs.choose(kWork, true);
    EXPECT_NE(choice, PagingChoice::kLoad);
    met += choice == PagingChoice::kMeet ? 1 : 0;
  }
  EXPECT_EQ(met, 2);
}

TEST(PagingCosts, TheFasterWinsAndTheOtherIsTriedAgain) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(kSlow, 1000, microseconds(999));
  EXPECT_EQ(loads_of(costs, 100), 100);
  costs.note_load(kSlow, 1000, microseconds(3000));
  EXPECT_EQ(loads_of(costs, 2 * PagingCosts::kRetry), 2);
}

TEST(PagingCosts, OldMovesFade) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(kSlow, 4000, microseconds(400'000));
  EXPECT_EQ(costs.choose(kWork, false), PagingChoice::kCompute);
  for (int i = 0; i < 20; ++i) costs.note_load(kSlow, 4000, microseconds(400));
  EXPECT_EQ(costs.choose(kWork, false), PagingChoice::kLoad);
}

TEST(PagingCosts, EachLevelHasItsOwnRate) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(kSlow, 1000, microseconds(3000));
  EXPECT_EQ(costs.choose(work_of(0, 100), false), PagingChoice::kLoad) << "not known yet";
  costs.note_load(kFast, 1000, microseconds(100));
  EXPECT_EQ(costs.choose(work_of(0, 100), false), PagingChoice::kLoad);
  EXPECT_EQ(costs.choose(work_of(100, 0), false), PagingChoice::kCompute);
  // The levels load beside each other.
  EXPECT_EQ(costs.choose(work_of(33, 67), false), PagingChoice::kLoad);
  EXPECT_EQ(costs.choose(work_of(34, 66), false), PagingChoice::kCompute);
  EXPECT_TRUE(costs.loads_pay(work_of(33, 67)));
  EXPECT_FALSE(costs.loads_pay(work_of(34, 66)));
}

TEST(PagingCosts, FastLoadsBetweenDoNotPutOffTheRetryOfTheSlowLevel) {
  PagingCosts costs;
  costs.note_chunks(1000, microseconds(1000));
  costs.note_load(kSlow, 1000, microseconds(100'000));
  costs.note_load(kFast, 1000, microseconds(100));
  int slow_loads = 0;
  for (int i = 0; i < 2 * PagingCosts::kRetry; ++i) {
    EXPECT_EQ(costs.choose(work_of(0, 100), false), PagingChoice::kLoad);
    slow_loads += loads_of(costs, 1);
  }
  EXPECT_EQ(slow_loads, 2);
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

// A model that takes a millisecond for a token, and a tier with two levels: a load of a block from
// the slow one takes 40 ms or `slow`, from the fast one 0.4 ms. Blocks have 4 tokens.
class TwoLevelsTest : public testing::Test {
 protected:
  static constexpr std::int32_t kBlocks = 25;  // of a prompt

  explicit TwoLevelsTest(std::int32_t meeting_tokens = 0, Duration slow = microseconds(40'000))
      : h_(options(meeting_tokens)), slow_(slow) {}

  static HarnessOptions options(std::int32_t meeting_tokens) {
    HarnessOptions options;
    options.tier_pages = 128;
    options.token_budget = 128;
    options.meeting_tokens = meeting_tokens;
    return options;
  }
  // Only the tier has the blocks of the prompt then; the fast level has the first `fast` of them.
  void leave_below(TokenId first, std::int32_t fast) {
    h_.add(4 * kBlocks + 1, 1, first);
    while (h_.scheduler.has_work()) step();
    h_.save_all();
    h_.kv.drop_cached();
    const auto& names = h_.requests.back()->block_hashes;
    for (const PagedBlock& block : h_.executor.saved_pages()) {
      if (std::ranges::find(names, block.name) - names.begin() >= fast) continue;
      h_.page_levels.push_back({block.page, TierLevel::kFast});
      fast_.insert(block.page);
    }
  }
  // Returns the blocks that were loaded.
  std::size_t run(TokenId first) {
    h_.executor.hold_transfers();
    Sequence& sequence = h_.add(4 * kBlocks + 1, 1, first);
    std::size_t loaded = 0;
    while (sequence.state != SequenceState::kFinished) {
      step();
      if (loaded == 0) first_loaded_ = h_.executor.transfers().size();
      loaded += h_.executor.transfers().size();
      end_loads(fast_, microseconds(400));
      if (!h_.executor.transfers().empty()) step();
      end_loads({}, slow_);
    }
    EXPECT_EQ(sequence.tokens, h_.expected(sequence).tokens);
    h_.kv.drop_cached();
    return loaded;
  }
  // Before the prompt began.
  std::size_t first_loaded() const { return first_loaded_; }

 private:
  void step() {
    h_.now = h_.now + microseconds(1000 * h_.plan().token_ids.size());
    if (h_.committed < h_.planned) h_.commit();
  }
  // Ends the loads of these pages; empty: of all.
  void end_loads(const std::set<std::int32_t>& pages, Duration each) {
    const auto& transfers = h_.executor.transfers();
    for (std::size_t i = transfers.size(); i-- > 0;) {
      if (!pages.empty() && !pages.contains(transfers[i].place)) continue;
      h_.executor.end_transfer(i, false);
      h_.now = h_.now + each;
    }
  }

  SchedulerHarness h_;
  Duration slow_;
  std::set<std::int32_t> fast_;
  std::size_t first_loaded_ = 0;
};

class MeetingLevelsTest : public TwoLevelsTest {
 protected:
  MeetingLevelsTest() : TwoLevelsTest(8, microseconds(4000)) {}
};

TEST_F(TwoLevelsTest, TheFastOneIsUsedBesideOneThatDoesNotPay) {
  leave_below(100, kBlocks);
  leave_below(300, 0);
  EXPECT_EQ(run(100), 25U);
  EXPECT_EQ(run(300), 25U);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(run(100), 25U);
    EXPECT_EQ(run(300), 0U);
  }
}

TEST_F(TwoLevelsTest, TheBeginningThatTheFastOneHasIsLoadedAlone) {
  leave_below(100, 9);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run(100), 25U) << "not both are known";
  EXPECT_EQ(run(100), 9U);
  EXPECT_EQ(run(100), 9U);
}

TEST_F(MeetingLevelsTest, TheRestIsLoadedFromTheBack) {
  leave_below(100, 9);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run(100), 25U) << "not both are known";
  const std::size_t loaded = run(100);
  EXPECT_EQ(first_loaded(), 9U);
  EXPECT_GT(loaded, 9U);
  EXPECT_LT(loaded, 25U);
}

}  // namespace
}  // namespace sluice
