#include "scheduler/back_loads.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "scheduler/block_pager.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

// Blocks have 4 tokens, a step at most 16.
HarnessOptions meeting_options() {
  HarnessOptions options;
  options.token_budget = 16;
  options.tier_pages = 64;
  options.meeting_tokens = 8;
  return options;
}

// A model that takes a millisecond for a token, and a tier that takes `load_ms`.
class BackLoadsTest : public testing::Test {
 protected:
  static constexpr TokenId kChat = 100;

  void begin(const HarnessOptions& options, int load_ms) {
    h_ = std::make_unique<SchedulerHarness>(options);
    leave_below(101, kChat);
    h_->executor.hold_transfers();
    // The rate of neither side is known yet, so all is loaded first.
    h_->add(101, 1, kChat);
    ASSERT_EQ(h_->step(), "");
    h_->now = h_->now + milliseconds(100 * load_ms);
    end_loads(100);
    run_to_end();
    h_->kv.drop_cached();
  }
  SchedulerHarness& h() { return *h_; }

  // Runs a request, after which only the tier has its blocks.
  void leave_below(std::int32_t length, TokenId first) {
    h_->add(length, 1, first);
    run_to_end();
    h_->save_all();
    h_->kv.drop_cached();
  }
  // One step, which takes a millisecond for each token.
  std::string step() {
    const BatchPlan& plan = h_->plan();
    h_->now = h_->now + milliseconds(plan.token_ids.size());
    std::string text = SchedulerHarness::describe(plan);
    if (h_->committed < h_->planned) h_->commit();
    return text;
  }
  void run_to_end() {
    while (h_->scheduler.has_work()) step();
  }
  // Ends the oldest `count` loads, fewer if fewer are under way.
  void end_loads(std::size_t count, bool failed = false) {
    for (; count > 0 && !h_->executor.transfers().empty(); --count) {
      h_->executor.end_transfer(0, failed);
    }
  }
  void expect_exact(const Sequence& sequence) {
    EXPECT_EQ(sequence.state, SequenceState::kFinished);
    EXPECT_EQ(sequence.tokens, h_->expected(sequence).tokens);
  }

 private:
  std::unique_ptr<SchedulerHarness> h_;
};

TEST_F(BackLoadsTest, FrontAndLoadsMeetInTheMiddle) {
  begin(meeting_options(), 1);
  Sequence& chat = h().add(101, 2, kChat);
  EXPECT_EQ(step(), "3:16@0");
  // The 25 blocks are divided; the last one is loaded first.
  ASSERT_EQ(h().executor.transfers().size(), 12U);
  EXPECT_EQ(h().plans[(h().planned - 1) % h().plans.size()].pages.front().depth, 24);
  end_loads(4);
  EXPECT_EQ(step(), "3:16@16");
  end_loads(4);
  EXPECT_EQ(step(), "3:16@32");
  end_loads(4);
  EXPECT_EQ(step(), "3:4@48");
  EXPECT_EQ(step(), "3:1@100");
  EXPECT_EQ(step(), "3:1@101");
  expect_exact(chat);
  EXPECT_EQ(chat.cached_prompt_tokens, 48);
  EXPECT_EQ(h().scheduler.paging_stats().hit_tokens, 100 + 48);
  EXPECT_EQ(h().scheduler.paging_stats().met, 1);
  EXPECT_EQ(h().kv.num_paging(), 0);
}

TEST_F(BackLoadsTest, AFasterTierThanMeasuredGetsMore) {
  begin(meeting_options(), 2);
  Sequence& chat = h().add(101, 1, kChat);
  EXPECT_EQ(step(), "3:16@0");
  EXPECT_EQ(h().executor.transfers().size(), 8U);  // a third
  end_loads(8);
  EXPECT_EQ(step(), "3:16@16");
  EXPECT_GT(h().executor.transfers().size(), 3U);
  end_loads(100);
  run_to_end();
  expect_exact(chat);
  EXPECT_GT(chat.cached_prompt_tokens, 48);
}

TEST_F(BackLoadsTest, NothingWaitsForLoadsThatDoNotCome) {
  begin(meeting_options(), 1);
  Sequence& chat = h().add(101, 2, kChat);
  for (int i = 0; i < 6; ++i) EXPECT_NE(step(), "");
  while (chat.state != SequenceState::kFinished) ASSERT_NE(step(), "");
  expect_exact(chat);
  EXPECT_EQ(chat.cached_prompt_tokens, 0);
  EXPECT_EQ(h().executor.transfers().size(), 12U);
  EXPECT_EQ(h().kv.num_paging(), 12);
  end_loads(100);
  step();
  EXPECT_EQ(h().kv.num_paging(), 0);
}

TEST_F(BackLoadsTest, AFailedLoadIsComputed) {
  begin(meeting_options(), 1);
  Sequence& chat = h().add(101, 1, kChat);
  EXPECT_EQ(step(), "3:16@0");
  end_loads(4);
  end_loads(1, true);  // tokens 80 to 84
  EXPECT_EQ(step(), "3:16@16");
  end_loads(4);
  EXPECT_EQ(step(), "3:16@32");
  end_loads(3);
  EXPECT_EQ(step(), "3:4@48");
  EXPECT_EQ(step(), "3:4@80");
  EXPECT_EQ(step(), "3:1@100");
  expect_exact(chat);
  EXPECT_EQ(chat.cached_prompt_tokens, 28 + 16);
}

TEST_F(BackLoadsTest, AFastTierLoadsAllFirst) {
  HarnessOptions options = meeting_options();
  begin(options, 1);
  // Loads that take no time make the tier fast.
  for (int i = 0; i < 30; ++i) {
    h().add(101, 1, kChat);
    while (h().scheduler.has_work()) {
      step();
      end_loads(100);
    }
    h().kv.drop_cached();
  }
  h().add(101, 1, kChat);
  EXPECT_EQ(step(), "");
  EXPECT_EQ(h().executor.transfers().size(), 25U);
  end_loads(100);
  EXPECT_EQ(step().substr(2), ":1@100");
}

TEST_F(BackLoadsTest, ASlowTierIsTriedWithFewLoads) {
  begin(meeting_options(), 50);
  std::size_t tried = 0;
  for (int i = 0; i < PagingCosts::kRetry; ++i) {
    Sequence& chat = h().add(101, 1, kChat);
    EXPECT_TRUE(step().ends_with(":16@0"));
    tried += h().executor.transfers().size();
    run_to_end();
    expect_exact(chat);
    end_loads(100);
    h().save_all();
    h().kv.drop_cached();
  }
  EXPECT_EQ(tried, 2U);
}

TEST_F(BackLoadsTest, ACancelledSequenceHoldsOnlyWhatIsUnderWay) {
  begin(meeting_options(), 1);
  Sequence& chat = h().add(101, 2, kChat);
  Sequence& follower = h().add(97, 2, kChat);
  EXPECT_EQ(step(), "3:16@0");
  end_loads(4);
  EXPECT_EQ(step(), "3:16@16");
  h().scheduler.cancel(chat);
  h().scheduler.check_integrity();
  EXPECT_EQ(h().kv.num_paging(), 8);
  end_loads(100);
  run_to_end();
  end_loads(100);
  step();
  expect_exact(follower);
  EXPECT_EQ(h().kv.num_used_blocks(), 0);
}

TEST_F(BackLoadsTest, APreemptedSequenceFindsWhatWasLoaded) {
  HarnessOptions options = meeting_options();
  options.num_blocks = 31;
  begin(options, 1);
  Sequence& chat = h().add(101, 2, kChat);
  EXPECT_EQ(step(), "3:16@0");
  end_loads(6);
  EXPECT_EQ(step(), "3:16@16");
  Request& urgent = h().request(20, 2, 500);
  urgent.priority = -1;
  ASSERT_TRUE(h().scheduler.add(h().sequence(urgent)));
  for (int i = 0; i < 20 && chat.num_preemptions == 0; ++i) {
    step();
    end_loads(1);
  }
  ASSERT_EQ(chat.num_preemptions, 1);
  while (h().scheduler.has_work()) {
    step();
    end_loads(1);
  }
  expect_exact(chat);
  expect_exact(*h().sequences.back());
}

// The front needs blocks that loads have, and memory has no others.
TEST_F(BackLoadsTest, NeedsNoMemoryBeyondThePrompt) {
  HarnessOptions options = meeting_options();
  options.num_blocks = 1 + 26;
  options.max_model_len = 104;
  begin(options, 1);
  Sequence& chat = h().add(101, 2, kChat);
  for (int i = 0; i < 4; ++i) EXPECT_NE(step(), "");
  EXPECT_EQ(step(), "");  // all blocks but those under way are computed
  end_loads(2, true);     // tokens 92 to 100
  end_loads(100);
  EXPECT_EQ(step(), "3:9@92");
  run_to_end();
  expect_exact(chat);
}

// The loads do not come, and hold blocks that the front needs. A newer sequence yields to it.
TEST_F(BackLoadsTest, AFrontThatLacksMemoryWaitsForFewPlans) {
  HarnessOptions options = meeting_options();
  options.num_blocks = 1 + 29;
  begin(options, 1);
  Sequence& chat = h().add(101, 2, kChat);
  Sequence& newer = h().add(3, 60, 500);
  int waits = 0;
  for (int i = 0; i < 40 && newer.num_preemptions == 0; ++i) {
    waits += step().starts_with("3:") ? 0 : 1;
  }
  EXPECT_EQ(newer.num_preemptions, 1);
  EXPECT_EQ(waits, BackLoads::kMostWaits + 1);  // its last row had been planned
  while (h().scheduler.has_work()) {
    step();
    end_loads(1);
  }
  expect_exact(chat);
  expect_exact(newer);
}

// A plan that only takes blocks over is empty and is dropped; the next row has them all the same.
TEST_F(BackLoadsTest, TakesBlocksOverWithoutARow) {
  HarnessOptions options = meeting_options();
  options.num_blocks = 1 + 26;
  options.max_model_len = 104;
  begin(options, 1);
  Sequence& chat = h().add(101, 2, kChat);
  for (int i = 0; i < 3; ++i) EXPECT_NE(step(), "");
  // All but the first blocks behind the front come: those behind block 13 are taken over first.
  while (h().executor.transfers().size() > 1) h().executor.end_transfer(0, false);
  while (chat.state != SequenceState::kFinished) {
    step();
    h().scheduler.check_integrity();
    if (h().executor.transfers().size() == 1) end_loads(1);
  }
  expect_exact(chat);
}

TEST_F(BackLoadsTest, StepsInFlightGoOnBehindTheLoads) {
  HarnessOptions options = meeting_options();
  options.max_in_flight = 2;
  begin(options, 1);
  Sequence& chat = h().add(101, 4, kChat);
  h().plan();
  for (int i = 0; i < 40 && chat.state != SequenceState::kFinished; ++i) {
    end_loads(4);
    h().plan();
    h().now = h().now + milliseconds(16);
    if (h().committed < h().planned) h().commit();
  }
  while (h().committed < h().planned) h().commit();
  expect_exact(chat);
  EXPECT_GT(chat.cached_prompt_tokens, 40);
}

TEST_F(BackLoadsTest, LoadsOfAWindowWhatIsSeenFromTheEnd) {
  HarnessOptions options = meeting_options();
  options.windows = {0, 40};
  begin(options, 1);
  Sequence& chat = h().add(101, 2, kChat);
  EXPECT_EQ(step(), "3:16@0");
  EXPECT_EQ(h().executor.transfers().size(), 12U + 10U);
  while (chat.state != SequenceState::kFinished) {
    end_loads(7);
    step();
  }
  expect_exact(chat);
  EXPECT_GE(chat.cached_prompt_tokens, 40);
  end_loads(100);
  step();
  EXPECT_EQ(h().kv.num_paging(), 0);
  EXPECT_EQ(h().kv.num_used_blocks(), 0);
}

// Block 24 of the second group fails, so the end of the first 24 blocks is as far as the front can
// go, and only from block 15 on: those before it are seen from there, and were not loaded.
TEST_F(BackLoadsTest, AWindowsBlockThatFailsIsComputed) {
  HarnessOptions options = meeting_options();
  options.windows = {0, 40};
  begin(options, 1);
  Sequence& chat = h().add(101, 2, kChat);
  EXPECT_EQ(step(), "3:16@0");
  end_loads(1);
  end_loads(1, true);
  end_loads(100);
  std::string rows;
  while (chat.state != SequenceState::kFinished) rows += step() + ' ';
  EXPECT_EQ(rows, "3:16@16 3:16@32 3:12@48 3:5@96 3:1@101 ");
  expect_exact(chat);
  EXPECT_EQ(chat.cached_prompt_tokens, 36);
}

TEST_F(BackLoadsTest, WindowsAloneLoadAllFirst) {
  HarnessOptions options = meeting_options();
  options.windows = {8};
  begin(options, 1);
  h().add(101, 1, kChat);
  EXPECT_EQ(step(), "");
  EXPECT_EQ(h().executor.transfers().size(), 2U);
}

TEST_F(BackLoadsTest, VtcChargesNoLoadedToken) {
  HarnessOptions options = meeting_options();
  options.policy = "vtc";
  options.max_num_seqs = 1;
  begin(options, 1);
  const auto add = [&](std::int32_t length, const char* client, TokenId first) {
    Request& request = h().request(length, 1, first);
    request.client_key = client;
    ASSERT_TRUE(h().scheduler.add(h().sequence(request)));
  };
  add(101, "a", kChat);
  add(20, "a", 600);
  add(60, "b", 700);
  add(20, "b", 800);
  std::string order;
  while (h().scheduler.has_work()) {
    const std::string row = step();
    if (row.ends_with("@0")) order += row.substr(0, 1);
    end_loads(4);
  }
  // After the first two, `a` has paid for 53 tokens and `b` for 60.
  EXPECT_EQ(order, "3546");
}

}  // namespace
}  // namespace sluice
