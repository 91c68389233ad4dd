#include "scheduler/block_pager.h"

#include <gtest/gtest.h>

#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

// Blocks have 4 tokens.
HarnessOptions paging_options() {
  HarnessOptions options;
  options.tier_pages = 64;
  return options;
}

// Runs a request with the prompt of `first`, after which only the tier has its blocks.
void leave_below(SchedulerHarness& h, std::int32_t length, TokenId first) {
  h.add(length, 1, first);
  h.run_to_end();
  h.save_all();
  h.kv.drop_cached();
}

void end_all(SchedulerHarness& h) {
  while (!h.executor.transfers().empty()) h.executor.end_transfer(0, false);
}

TEST(BlockPager, ASequenceWaitsForItsBlocksAndHoldsUpNoOther) {
  SchedulerHarness h(paging_options());
  leave_below(h, 20, 100);
  h.executor.hold_transfers();
  Sequence& returns = h.add(22, 2, 100);
  h.add(8, 2, 500);
  EXPECT_EQ(h.step(), "3:8@0");
  EXPECT_EQ(h.executor.transfers().size(), 5U);
  h.executor.end_transfer(1, false);
  EXPECT_EQ(h.step(), "3:1@8");
  end_all(h);
  EXPECT_EQ(h.step(), "2:2@20");
  h.run_to_end();
  EXPECT_EQ(returns.tokens, h.expected(returns).tokens);
  EXPECT_EQ(returns.cached_prompt_tokens, 20);
  EXPECT_EQ(h.scheduler.paging_stats().hit_tokens, 20);
}

TEST(BlockPager, SavesKnowWhetherStepsRunBesideThem) {
  SchedulerHarness h(paging_options());
  h.add(8, 1, 100);
  h.add(4, 6, 500);
  h.run_to_end();  // the first one's blocks are saved beside the second
  h.save_all();
  std::vector<SaveHaste> hastes;
  for (const PagedBlock& block : h.executor.saved_pages()) hastes.push_back(block.haste);
  EXPECT_EQ(hastes, (std::vector<SaveHaste>{SaveHaste::kEasy, SaveHaste::kEasy, SaveHaste::kIdle,
                                            SaveHaste::kIdle}));
}

TEST(BlockPager, LoadsOnlyBlocksThatMemoryLacks) {
  SchedulerHarness h(paging_options());
  leave_below(h, 20, 100);
  h.add(8, 1, 100);  // its second block is computed, because one token always is
  h.run_to_end();
  h.save_all();
  EXPECT_EQ(h.scheduler.paging_stats().saved_blocks, 5);  // a copy below stays valid
  const std::int64_t before = h.scheduler.paging_stats().loaded_blocks;
  h.add(20, 1, 100);
  h.run_to_end();
  EXPECT_EQ(h.scheduler.paging_stats().loaded_blocks - before, 2);  // the third and the fourth
}

TEST(BlockPager, ComputesFromTheFirstBlockThatIsMissing) {
  SchedulerHarness h(paging_options());
  leave_below(h, 20, 100);
  h.executor.hold_transfers();
  Sequence& returns = h.add(20, 2, 100);
  EXPECT_EQ(h.step(), "");
  h.executor.end_transfer(2, true);
  end_all(h);
  EXPECT_EQ(h.step(), "2:12@8");
  EXPECT_EQ(h.step(), "2:1@20");
  EXPECT_EQ(returns.tokens, h.expected(returns).tokens);
  EXPECT_EQ(h.scheduler.paging_stats().failed_loads, 1);
}

TEST(BlockPager, ABlockThatCouldNotBeReadIsReadByALaterSequence) {
  SchedulerHarness h(paging_options());
  leave_below(h, 20, 100);
  h.executor.hold_transfers();
  for (int i = 1; i <= 2; ++i) {
    Sequence& returns = h.add(22, 1, 100);
    EXPECT_EQ(h.step(), "");
    h.executor.end_transfer(2, true, true);
    end_all(h);
    h.run_to_end();
    EXPECT_EQ(returns.tokens, h.expected(returns).tokens);
    EXPECT_EQ(returns.cached_prompt_tokens, 8);
    EXPECT_EQ(h.scheduler.paging_stats().failed_loads, i);
    h.save_all();
    h.kv.drop_cached();
  }
  h.add(22, 1, 100);
  EXPECT_EQ(h.step(), "");
  EXPECT_EQ(h.executor.transfers().size(), 5U);
  end_all(h);
  EXPECT_EQ(h.step().substr(1), ":2@20");
}

TEST(BlockPager, ACancelledSequenceLeavesItsLoadsToItsFollower) {
  SchedulerHarness h(paging_options());
  leave_below(h, 20, 100);
  h.executor.hold_transfers();
  Sequence& first = h.add(20, 2, 100);
  Sequence& second = h.add(19, 2, 100);
  EXPECT_EQ(h.step(), "");
  const std::size_t loads = h.executor.transfers().size();
  EXPECT_EQ(loads, 4U);
  h.scheduler.cancel(first);
  EXPECT_EQ(h.step(), "");
  EXPECT_EQ(h.kv.num_paging(), 4);  // held until the ends of the transfers
  end_all(h);
  EXPECT_EQ(h.step(), "3:3@16");
  EXPECT_EQ(h.step(), "3:1@19");
  EXPECT_EQ(h.kv.num_paging(), 0);
  EXPECT_EQ(second.tokens, h.expected(second).tokens);
}

TEST(BlockPager, AnotherSchedulerGoesOnWithTheTier) {
  SchedulerHarness before(paging_options());
  leave_below(before, 20, 100);
  SchedulerHarness h(paging_options());
  const std::vector<PagedBlock> stored = before.executor.saved_pages();
  EXPECT_EQ(stored.size(), 5U);
  h.executor.take_tier(before.executor);
  for (const PagedBlock& page : stored) h.kv.restore_page(page.page, page.name, page.group);
  Sequence& returns = h.add(30, 4, 100);
  h.run_to_end();
  EXPECT_EQ(returns.cached_prompt_tokens, 20);
  EXPECT_EQ(returns.tokens, h.expected(returns).tokens);
}

// The tier has less room than pages: it says which blocks it has dropped.
TEST(BlockPager, ABlockThatTheTierDroppedIsComputedAndSavedAgain) {
  SchedulerHarness h(paging_options());
  leave_below(h, 20, 100);
  EXPECT_EQ(h.kv.tier().num_saved(), 5);
  const PagedBlock third = h.executor.saved_pages().at(2);
  PagedBlock other = third;
  other.name.low ^= 1;
  h.kv.lose_page(other);  // the page has another block by now
  EXPECT_EQ(h.kv.tier().num_saved(), 5);
  h.kv.lose_page(third);
  EXPECT_EQ(h.kv.tier().num_saved(), 4);
  Sequence& returns = h.add(20, 2, 100);
  h.run_to_end();
  EXPECT_EQ(returns.tokens, h.expected(returns).tokens);
  EXPECT_EQ(h.scheduler.paging_stats().loaded_blocks, 2);
  EXPECT_EQ(h.scheduler.paging_stats().failed_loads, 0);
  h.save_all();
  EXPECT_EQ(h.kv.tier().num_saved(), 5);
  h.kv.check_integrity();
}

TEST(BlockPager, ASlidingGroupLoadsItsWindow) {
  HarnessOptions options = paging_options();
  options.windows = {8};
  SchedulerHarness h(options);
  leave_below(h, 40, 100);
  h.executor.hold_transfers();
  Sequence& returns = h.add(44, 2, 100);
  EXPECT_EQ(h.step(), "");
  EXPECT_EQ(h.executor.transfers().size(), 2U);
  end_all(h);
  EXPECT_EQ(h.step(), "2:4@40");
  h.step();
  EXPECT_EQ(returns.tokens, h.expected(returns).tokens);
}

TEST(BlockPager, SavesNothingThatTheTierDoesNotTake) {
  SchedulerHarness h(paging_options());
  h.executor.accept_saves(false);
  h.add(20, 1, 100);
  h.run_to_end();
  EXPECT_TRUE(h.plan().empty());
  EXPECT_EQ(h.kv.num_unsaved(), 5);
  h.executor.accept_saves(true);
  h.executor.fail_transfers(true);
  h.save_all();  // a failed save is not tried again
  EXPECT_EQ(h.scheduler.paging_stats().failed_saves, 5);
  EXPECT_EQ(h.kv.tier().num_saved(), 0);
}

TEST(BlockPager, BlocksOfRequestsThatStayInMemoryAreNotSaved) {
  SchedulerHarness h(paging_options());
  Request& secret = h.request(20, 1, 100);
  secret.block_owner = {{7, 7}, true};
  ASSERT_TRUE(h.scheduler.add(h.sequence(secret)));
  h.run_to_end();
  EXPECT_EQ(h.kv.num_unsaved(), 0);
  h.save_all();
  EXPECT_EQ(h.scheduler.paging_stats().saved_blocks, 0);

  // Memory reuses a block that stood in line for another request.
  h.executor.accept_saves(false);
  h.add(8, 1, 500);
  h.run_to_end();
  EXPECT_EQ(h.kv.num_unsaved(), 2);
  h.kv.drop_cached();
  ASSERT_TRUE(h.scheduler.add(h.sequence(secret)));
  h.run_to_end();
  h.executor.accept_saves(true);
  h.save_all();
  EXPECT_EQ(h.scheduler.paging_stats().saved_blocks, 0);

  // A block that another request shares is this one's, too, and goes under its tenant.
  Request& open = h.request(20, 1, 100);
  open.block_owner = {{7, 7}, false};
  ASSERT_TRUE(h.scheduler.add(h.sequence(open)));
  h.run_to_end();
  h.save_all();
  EXPECT_EQ(h.scheduler.paging_stats().saved_blocks, 5);
  for (const PagedBlock& page : h.executor.saved_pages()) {
    EXPECT_EQ(page.tenant, (Hash128{7, 7}));
  }
}

TEST(BlockPager, ALoadedBlockKeepsItsTenant) {
  HarnessOptions options = paging_options();
  options.tier_pages = 5;
  SchedulerHarness h(options);
  Request& first = h.request(20, 1, 100);
  first.block_owner.tenant = {1, 2};
  ASSERT_TRUE(h.scheduler.add(h.sequence(first)));
  h.run_to_end();
  h.save_all();
  h.kv.drop_cached();
  ASSERT_TRUE(h.scheduler.add(h.sequence(first)));
  h.executor.accept_saves(false);
  h.run_to_end();
  EXPECT_EQ(h.scheduler.paging_stats().loaded_blocks, 4);
  Sequence& other = h.add(20, 1, 500);  // takes all pages
  h.executor.accept_saves(true);
  h.run_to_end();
  h.save_all();
  EXPECT_EQ(other.finish_reason, FinishReason::kLength);
  ASSERT_TRUE(h.scheduler.add(h.sequence(first)));
  h.run_to_end();
  h.save_all();
  std::int32_t own = 0;
  for (const PagedBlock& page : h.executor.saved_pages()) {
    own += page.tenant == Hash128{1, 2} ? 1 : 0;
  }
  EXPECT_GE(own, 4);
}

}  // namespace
}  // namespace sluice
