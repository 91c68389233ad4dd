// Whole schedules, written out. "1:4@0" is sequence 1 computing 4 tokens behind 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> steps(SchedulerHarness& h, int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) lines.push_back(h.step());
  return lines;
}

// Figure 7 of the Sarathi-Serve paper, its fourth timeline. A (1) and B (2) decode; after one
// iteration C (3) and D (4) enter with prompts longer than a chunk. The budget of 10 leaves 8
// tokens for prompts: C's first chunk; then C's last chunk (Cp1) and what remains to D (Dp0); then
// D's last, while C decodes. A and B run in every step: no stall.
TEST(GoldenSchedule, SarathiFigure7) {
  SchedulerHarness h({.token_budget = 10});
  h.add(4, 20);
  h.add(4, 20);
  EXPECT_EQ(h.step(), "1:4@0 2:4@0");
  EXPECT_EQ(h.step(), "1:1@4 2:1@4");
  h.add(12, 20);
  h.add(12, 20);
  EXPECT_THAT(steps(h, 4), ElementsAre("1:1@5 2:1@5 3:8@0",         //
                                       "1:1@6 2:1@6 3:4@8 4:4@0",   //
                                       "1:1@7 2:1@7 3:1@12 4:7@4",  //
                                       "1:1@8 2:1@8 3:1@13 4:1@11"));
  EXPECT_THAT(steps(h, 1), ElementsAre("1:1@9 2:1@9 3:1@14 4:1@12"));
}

// More decodes than budget: all of them run, and no chunk is negative.
TEST(GoldenSchedule, DecodesBeyondTheBudget) {
  SchedulerHarness h({.token_budget = 2});
  h.add(1, 20);
  h.add(1, 20);
  h.add(1, 20);
  h.add(1, 20);
  EXPECT_THAT(steps(h, 2), ElementsAre("1:1@0 2:1@0", "1:1@1 2:1@1"));
  // Decodes leave nothing, so prompts wait until somebody ends.
  EXPECT_THAT(steps(h, 17).back(), "1:1@18 2:1@18");
  EXPECT_THAT(steps(h, 3), ElementsAre("1:1@19 2:1@19", "3:1@0 4:1@0", "3:1@1 4:1@1"));

  SchedulerHarness wide({.token_budget = 3, .max_in_flight = 2});
  for (int i = 0; i < 3; ++i) wide.add(1, 9);
  EXPECT_EQ(SchedulerHarness::describe(wide.plan()), "1:1@0 2:1@0 3:1@0");
  wide.add(1, 9);
  // Three decodes fill the budget exactly; the fourth prompt waits.
  EXPECT_EQ(SchedulerHarness::describe(wide.plan()), "1:1@1 2:1@1 3:1@1");
}

// Two steps in flight: a prompt's next chunk and the first decode go behind what still runs.
TEST(GoldenSchedule, ChunksAndDecodesBehindStepsInFlight) {
  SchedulerHarness h({.token_budget = 4, .max_in_flight = 2});
  const Sequence& s = h.add(6, 4);
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:4@0");
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:2@4");
  h.commit();
  const BatchPlan& third = h.plan();
  EXPECT_EQ(SchedulerHarness::describe(third), "1:1@6");
  EXPECT_THAT(third.token_ids, ElementsAre(kTokenFromLastStep));
  h.commit();
  EXPECT_EQ(s.output_len(), 1);
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@7");
  h.commit();
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@8");
  h.commit();
  // Position 8 gives the fourth and last output: nothing more may be planned.
  EXPECT_TRUE(h.plan().empty());
  h.commit();
  EXPECT_EQ(s.finish_reason, FinishReason::kLength);
  EXPECT_EQ(s.tokens, h.expected(s).tokens);
}

// Choices wait for the first one's prompt, then fork it and compute its last token only.
TEST(GoldenSchedule, ChoicesForkThePrompt) {
  SchedulerHarness h({.token_budget = 8, .max_num_seqs = 4, .prefix_caching = PrefixCaching::kOff});
  Request& r = h.request(10, 3);
  r.sampling.n = 3;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(h.scheduler.add(h.sequence(r)));
  h.add(5, 3);                                   // another request: need not wait for the choices
  EXPECT_THAT(steps(h, 3), ElementsAre("1:8@0",  //
                                       "1:2@8 4:5@0",  // the choices wait, the next does not
                                       "1:1@10 4:1@5 2:1@9 3:1@9"));
  h.run_to_end();
  for (const auto& s : h.sequences) EXPECT_EQ(s->tokens, h.expected(*s).tokens);
}

}  // namespace
}  // namespace sluice
