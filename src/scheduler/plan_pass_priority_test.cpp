// A waiting sequence of higher priority displaces running ones, under every policy but two.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "scheduler/plan_pass.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

// Blocks have 4 tokens; memory has room for `tokens`.
HarnessOptions small_memory(std::int32_t tokens) {
  HarnessOptions options;
  options.num_blocks = tokens / 4 + 1;
  options.tier_pages = 64;
  return options;
}

Sequence& add(SchedulerHarness& h, std::int32_t priority, std::int32_t length,
              std::int32_t max_tokens) {
  Request& request = h.request(length, max_tokens);
  request.priority = priority;
  Sequence& sequence = h.sequence(request);
  CHECK(h.scheduler.add(sequence).has_value());
  return sequence;
}

class Priority : public testing::TestWithParam<std::string> {};

TEST_P(Priority, AnUrgentPromptStartsAtOnceAndTheDisplacedOneGoesOn) {
  HarnessOptions options = small_memory(140);
  options.policy = GetParam();
  SchedulerHarness h(options);
  Sequence& low = add(h, 1, 40, 80);
  for (int i = 0; i < 41; ++i) h.step();
  const std::int32_t before = low.output_len();
  ASSERT_GT(before, 30);
  Sequence& high = add(h, 0, 40, 60);  // 25 blocks at most; the low one has 20
  int steps = 0;
  while (high.output_len() == 0) {
    h.step();
    ASSERT_LT(++steps, 12);
  }
  h.run_to_end();
  EXPECT_EQ(low.num_preemptions, 1);
  EXPECT_EQ(high.num_preemptions, 0);
  for (const Sequence* each : {&low, &high}) EXPECT_EQ(each->tokens, h.expected(*each).tokens);
  EXPECT_GT(h.scheduler.paging_stats().saved_blocks, 0);
  EXPECT_EQ(h.scheduler.paging_stats().hit_tokens % 4, 0);
}

std::vector<std::string> displacing_policies() {
  std::vector<std::string> names;
  for (const std::string_view name : policy_names()) {
    if (make_policy(name).value()->displaces()) names.emplace_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, Priority, testing::ValuesIn(displacing_policies()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

TEST(PriorityTest, DisplacedBlocksAreSavedFirstAndComeBack) {
  SchedulerHarness h(small_memory(80));
  Sequence& low = add(h, 1, 64, 8);
  h.step();
  h.step();
  Sequence& high = add(h, 0, 40, 2);
  h.run_to_end();
  const PagingStats& paging = h.scheduler.paging_stats();
  EXPECT_EQ(paging.failed_saves, 0);
  EXPECT_EQ(low.num_preemptions, 1);
  // Memory has 20 blocks. The urgent one took 11 of them, so 7 of the other's 16 come back,
  // and the partial one behind them.
  EXPECT_EQ(paging.hit_tokens, 28 + 1);
  EXPECT_EQ(low.tokens, h.expected(low).tokens);
  EXPECT_EQ(high.tokens, h.expected(high).tokens);
}

TEST(PriorityTest, SavesDelayAnUrgentPromptForASecondAtMost) {
  SchedulerHarness h(small_memory(80));
  h.executor.hold_transfers();
  Sequence& low = add(h, 1, 64, 8);
  h.step();
  h.step();
  Sequence& high = add(h, 0, 60, 2);
  EXPECT_EQ(h.step(), "");  // displaced; its saves are under way
  EXPECT_EQ(low.state, SequenceState::kWaiting);
  h.now = h.now + std::chrono::milliseconds(500);
  EXPECT_EQ(h.step(), "");
  // The blocks of saves under way are held, so some must end.
  while (h.executor.transfers().size() > 0) h.executor.end_transfer(0, true);
  h.now = h.now + PlanPass::kMostSaving;
  EXPECT_EQ(h.step(), "2:60@0");
  EXPECT_EQ(low.state, SequenceState::kWaiting);
  while (h.scheduler.has_work()) {
    h.step();
    while (h.executor.transfers().size() > 0) h.executor.end_transfer(0, false);
  }
  for (const Sequence* each : {&low, &high}) EXPECT_EQ(each->tokens, h.expected(*each).tokens);
}

TEST(PriorityTest, ASlotIsTakenFromTheLowestAndNewest) {
  HarnessOptions options;
  options.max_num_seqs = 3;
  SchedulerHarness h(options);
  Sequence& a = add(h, 1, 8, 20);
  Sequence& b = add(h, 2, 8, 20);
  Sequence& c = add(h, 2, 8, 20);
  h.step();
  Sequence& same = add(h, 2, 8, 2);
  h.step();
  EXPECT_EQ(same.state, SequenceState::kWaiting);
  Sequence& urgent = add(h, 1, 8, 2);
  h.step();
  EXPECT_EQ(urgent.state, SequenceState::kRunning);
  EXPECT_EQ(c.state, SequenceState::kWaiting);
  EXPECT_EQ(b.state, SequenceState::kRunning);
  h.run_to_end();
  EXPECT_EQ(a.num_preemptions + b.num_preemptions, 0);
  for (const Sequence* each : {&a, &b, &c, &same, &urgent}) {
    EXPECT_EQ(each->tokens, h.expected(*each).tokens);
  }
}

TEST(PriorityTest, NothingIsDisplacedInVain) {
  HarnessOptions options = small_memory(80);
  SchedulerHarness h(options);
  Sequence& first = add(h, 0, 40, 20);
  Sequence& low = add(h, 1, 16, 20);
  h.step();
  ASSERT_EQ(low.state, SequenceState::kRunning);
  Sequence& large = add(h, 0, 60, 4);  // only the end of the first one makes enough room
  h.step();
  h.step();
  EXPECT_EQ(low.num_preemptions, 0);
  h.run_to_end();
  for (const Sequence* each : {&first, &low, &large}) {
    EXPECT_EQ(each->tokens, h.expected(*each).tokens);
  }
}

TEST(PriorityTest, ASequenceInFlightIsDisplacedWhenItsStepHasEnded) {
  HarnessOptions options = small_memory(80);
  options.max_in_flight = 2;
  SchedulerHarness h(options);
  Sequence& low = add(h, 1, 60, 16);
  h.step();
  h.plan();
  Sequence& high = add(h, 0, 60, 2);
  h.plan();  // the low one gets no row
  EXPECT_EQ(low.state, SequenceState::kRunning);
  h.commit();
  h.plan();
  EXPECT_EQ(low.state, SequenceState::kWaiting);
  while (h.committed < h.planned) h.commit();
  h.run_to_end();
  for (const Sequence* each : {&low, &high}) EXPECT_EQ(each->tokens, h.expected(*each).tokens);
}

TEST(PriorityTest, AnUrgentPromptThatIsCancelledLetsOthersIn) {
  SchedulerHarness h(small_memory(80));
  h.executor.hold_transfers();
  Sequence& low = add(h, 1, 64, 8);
  h.step();
  h.step();
  Sequence& high = add(h, 0, 60, 2);
  EXPECT_EQ(h.step(), "");
  h.scheduler.cancel(high);
  while (h.scheduler.has_work()) {
    h.step();
    while (h.executor.transfers().size() > 0) h.executor.end_transfer(0, false);
  }
  EXPECT_EQ(low.tokens, h.expected(low).tokens);
}

}  // namespace
}  // namespace sluice
