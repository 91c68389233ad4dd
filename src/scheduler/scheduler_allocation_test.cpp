// Steady decode allocates nothing: every operator new of this program is counted.
#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

// What an executor would answer, without its cost: token 7 for every logit.
void answer(const BatchPlan& plan, StepResult& result) {
  result.clear();
  for (const PlanRow& row : plan.rows) {
    result.rows.push_back({.first_token = static_cast<std::int32_t>(result.tokens.size()),
                           .num_tokens = row.num_logits});
    for (std::int32_t i = 0; i < row.num_logits; ++i) result.tokens.push_back(7);
  }
}

void expect_no_allocation(std::vector<std::int32_t> windows, std::size_t in_flight) {
  SchedulerHarness h({.token_budget = 512,
                      .max_num_seqs = 64,
                      .max_model_len = 12000,
                      .block_size = 16,
                      .num_blocks = 64 * 750 * static_cast<std::int32_t>(windows.size()) + 1,
                      .windows = windows});
  std::vector<Sequence*> sequences;
  for (int i = 0; i < 64; ++i) sequences.push_back(&h.add(40, 11000));
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
  for (int i = 0; i < 10'000; ++i) step();
  EXPECT_EQ(allocation_count() - before, 0U);
  for (const Sequence* s : sequences) EXPECT_GT(s->output_len(), 9'900);
}

TEST(Allocation, NoneInTenThousandStepsOf64Sequences) { expect_no_allocation({0}, 1); }
TEST(Allocation, NoneWithTwoStepsInFlight) { expect_no_allocation({0}, 2); }
TEST(Allocation, NoneWithSlidingGroups) { expect_no_allocation({0, 512}, 2); }

}  // namespace
}  // namespace sluice
