// Steady decode allocates nothing under any policy: every operator new of this program is counted.
#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/predictor_curve.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

// Answers as an executor would, at no cost: token 7 for every logit.
void answer(const BatchPlan& plan, StepResult& result) {
  result.clear();
  for (const PlanRow& row : plan.rows) {
    result.rows.push_back({.first_token = static_cast<std::int32_t>(result.tokens.size()),
                           .num_tokens = row.num_logits});
    for (std::int32_t i = 0; i < row.num_logits; ++i) result.tokens.push_back(7);
  }
}

struct Run {
  std::string policy = "stall-free";
  std::vector<std::int32_t> windows = {0};
  std::size_t in_flight = 1;
  int steps = 10'000;
  std::int32_t micro_batches = 1;
  std::int32_t tier_pages = 0;
};

void expect_no_allocation(const Run& run) {
  const std::size_t in_flight = run.in_flight;
  const std::int32_t length = run.steps + 2000;
  const std::int32_t blocks = 64 * (length / 16 + 1);
  SchedulerHarness h({.policy = run.policy,
                      .token_budget = 512,
                      .max_num_seqs = 64,
                      .max_model_len = length,
                      .block_size = 16,
                      .num_blocks = blocks * static_cast<std::int32_t>(run.windows.size()) + 1,
                      .windows = run.windows,
                      .micro_batches = run.micro_batches,
                      .tier_pages = run.tier_pages});
  std::vector<Sequence*> sequences;
  for (int i = 0; i < 64; ++i) sequences.push_back(&h.add(40, length - 1000));
  std::vector<BatchPlan> plans(in_flight);
  StepResult result;
  std::size_t planned = 0;
  std::size_t committed = 0;
  const auto step = [&] {
    while (planned - committed < in_flight) {
      h.scheduler.plan(h.now, ResourceView{}, plans[planned++ % in_flight]);
    }
    const BatchPlan& oldest = plans[committed++ % in_flight];
    answer(oldest, result);
    h.scheduler.commit(oldest, result, h.now, h.commits);
  };
  for (int i = 0; i < 20; ++i) step();  // prefill, and the vectors of the test itself
  const std::size_t before = allocation_count();
  for (int i = 0; i < run.steps; ++i) step();
  EXPECT_EQ(allocation_count() - before, 0U) << run.policy;
  // A micro-batch has its share of the sequences.
  for (const Sequence* s : sequences) {
    EXPECT_GT(s->output_len(), run.steps / run.micro_batches * 99 / 100);
  }
}

TEST(Allocation, NoneInTenThousandStepsOf64Sequences) { expect_no_allocation({}); }
TEST(Allocation, NoneWithTwoStepsInFlight) { expect_no_allocation({.in_flight = 2}); }
TEST(Allocation, NoneWithSlidingGroups) {
  expect_no_allocation({.windows = {0, 512}, .in_flight = 2});
}
TEST(Allocation, NoneWithAnIdleTier) { expect_no_allocation({.steps = 1000, .tier_pages = 1000}); }
TEST(Allocation, NoneUnderAnyPolicy) {
  for (const std::string_view policy : policy_names()) {
    expect_no_allocation({.policy = std::string(policy), .steps = 1000});
    expect_no_allocation(
        {.policy = std::string(policy), .in_flight = 2, .steps = 1000, .micro_batches = 2});
  }
}

// Chunks of a long prompt beside streams, cut by time.
TEST(Allocation, NoneWithATimeBudget) {
  TimeBudget time;
  time.predictor = predictor_of_curve({{0, 0}, {100, 1e7}});
  time.tbt = std::chrono::milliseconds(2);
  time.longest_step = time.tbt;
  time.min_chunk = 4;
  SchedulerHarness h({.token_budget = 512,
                      .max_num_seqs = 16,
                      .max_model_len = 4000,
                      .block_size = 16,
                      .num_blocks = 5000,
                      .time_budget = time});
  for (int i = 0; i < 10; ++i) h.add(40, 1000);
  BatchPlan plan;
  StepResult result;
  std::size_t chunks = 0;
  const auto step = [&] {
    h.scheduler.plan(h.now, ResourceView{}, plan);
    chunks += plan.token_ids.size() > plan.rows.size() ? 1 : 0;
    answer(plan, result);
    // A fifth longer than predicted: there is something to learn.
    h.now = h.now + std::chrono::microseconds(120) * plan.token_ids.size();
    h.scheduler.commit(plan, result, h.now, h.commits);
  };
  for (int i = 0; i < 20; ++i) step();
  Sequence& prompt = h.add(3000, 1);
  step();  // admits it
  chunks = 0;
  const std::size_t before = allocation_count();
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(allocation_count() - before, 0U);
  EXPECT_EQ(chunks, 200U);
  EXPECT_LT(prompt.computed, 3000);
}

}  // namespace
}  // namespace sluice
