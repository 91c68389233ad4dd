// Whole schedules, written out. "1:4@0" is sequence 1 computing 4 tokens after 0 tokens.
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

// The other three timelines of that figure. Prompts of C and D that come while A and B decode...
// ...in vLLM run alone, as many as fit, and A and B stall: both at once, or one after the other
// when a step takes no more tokens than one of them has.
TEST(GoldenSchedule, VllmFigure7) {
  for (const bool both_fit : {true, false}) {
    SchedulerHarness s(
        {.policy = "prefill-first", .token_budget = both_fit ? 24 : 10, .max_model_len = 16});
    s.add(4, 10);
    s.add(4, 10);
    EXPECT_THAT(steps(s, 2), ElementsAre("1:4@0 2:4@0", "1:1@4 2:1@4"));
    s.add(12, 3);
    s.add(12, 3);
    if (both_fit) {
      EXPECT_EQ(s.step(), "3:12@0 4:12@0");
    } else {
      EXPECT_THAT(steps(s, 2), ElementsAre("3:12@0", "4:12@0"));
    }
    EXPECT_THAT(steps(s, 2), ElementsAre("1:1@5 2:1@5 3:1@12 4:1@12",  //
                                         "1:1@6 2:1@6 3:1@13 4:1@13"));
  }
}

// ...in Orca run beside A and B in one long step.
TEST(GoldenSchedule, OrcaFigure7) {
  for (const char* const policy : {"hybrid", "hybrid:max-tokens", "hybrid-only"}) {
    SchedulerHarness h({.policy = policy, .token_budget = 10});
    h.add(4, 20);
    h.add(4, 20);
    EXPECT_THAT(steps(h, 2), ElementsAre("1:4@0 2:4@0", "1:1@4 2:1@4"));
    h.add(12, 20);
    h.add(12, 20);
    EXPECT_THAT(steps(h, 2), ElementsAre("1:1@5 2:1@5 3:12@0 4:12@0",  //
                                         "1:1@6 2:1@6 3:1@12 4:1@12"));
  }
}

// ...in FasterTransformer wait until the last of A and B has ended.
TEST(GoldenSchedule, FasterTransformerFigure7) {
  SchedulerHarness h({.policy = "request-level", .token_budget = 10});
  h.add(4, 5);
  h.add(4, 4);
  EXPECT_THAT(steps(h, 2), ElementsAre("1:4@0 2:4@0", "1:1@4 2:1@4"));
  h.add(12, 3);
  h.add(12, 3);
  EXPECT_THAT(steps(h, 5), ElementsAre("1:1@5 2:1@5", "1:1@6 2:1@6", "1:1@7",  //
                                       "3:12@0 4:12@0", "3:1@12 4:1@12"));
}

// The same example under the rest. Chunks and decodes take turns, so A and B run in every second
// step only.
TEST(GoldenSchedule, ChunkedOnlyTakesTurns) {
  SchedulerHarness h({.policy = "chunked-only", .token_budget = 10});
  h.add(4, 20);
  h.add(4, 20);
  EXPECT_THAT(steps(h, 2), ElementsAre("1:4@0 2:4@0", "1:1@4 2:1@4"));
  h.add(12, 20);
  h.add(12, 20);
  EXPECT_THAT(steps(h, 6), ElementsAre("3:10@0",              //
                                       "1:1@5 2:1@5",         //
                                       "3:2@10 4:8@0",        //
                                       "1:1@6 2:1@6 3:1@12",  //
                                       "4:4@8",               //
                                       "1:1@7 2:1@7 3:1@13 4:1@12"));
}

// One budget in one order: a decode after a long prompt may have to wait, which `stall-free` never
// lets happen: here the prompt is more urgent than the streams.
TEST(GoldenSchedule, UnifiedCutsDecodes) {
  SchedulerHarness h({.policy = "unified", .token_budget = 3});
  for (int i = 0; i < 5; ++i) h.add(1, 4);
  EXPECT_THAT(steps(h, 5), ElementsAre("1:1@0 2:1@0 3:1@0",  //
                                       "1:1@1 2:1@1 3:1@1", "1:1@2 2:1@2 3:1@2",
                                       "1:1@3 2:1@3 3:1@3", "4:1@0 5:1@0"));
  Request& urgent = h.request(8, 2);
  urgent.priority = -1;
  ASSERT_TRUE(h.scheduler.add(h.sequence(urgent)));
  // It is admitted after the decodes; from then on it is before them in the order.
  EXPECT_THAT(steps(h, 4), ElementsAre("4:1@1 5:1@1 6:1@0", "6:3@1", "6:3@4", "6:1@7 4:1@2 5:1@2"));
}

// Orca's two ways to reserve, with memory for 32 tokens and a context of 20: three short requests
// run at once when each reserves its own max_tokens, one at a time beside a whole context.
TEST(GoldenSchedule, HybridReservations) {
  const HarnessOptions options{.policy = "hybrid:max-tokens",
                               .max_model_len = 20,
                               .num_blocks = 9,
                               .prefix_caching = PrefixCaching::kOff};
  SchedulerHarness own(options);
  for (int i = 0; i < 4; ++i) own.add(5, 4);  // 8 tokens to compute: 2 blocks
  EXPECT_EQ(own.step(), "1:5@0 2:5@0 3:5@0 4:5@0");
  own.add(5, 4);
  EXPECT_EQ(own.step(), "1:1@5 2:1@5 3:1@5 4:1@5");  // all 8 blocks are promised
  own.run_to_end();

  HarnessOptions context = options;
  context.policy = "hybrid";
  SchedulerHarness whole(context);
  for (int i = 0; i < 4; ++i) whole.add(5, 4);
  // The first is alone and reserves its 2 blocks; a whole context of 5 fits beside it, another not.
  EXPECT_THAT(steps(whole, 5), ElementsAre("1:5@0 2:5@0", "1:1@5 2:1@5", "1:1@6 2:1@6",
                                           "1:1@7 2:1@7", "3:5@0 4:5@0"));
  whole.run_to_end();
  for (const auto& s : whole.sequences) EXPECT_EQ(s->num_preemptions, 0);
}

// Prompts of a batch that do not fit into one step come in the next ones, before the first decode;
// a request that arrives meanwhile waits for the next batch; choices of the batch's requests join
// it.
TEST(GoldenSchedule, RequestLevelBatches) {
  SchedulerHarness h({.policy = "request-level",
                      .token_budget = 4,
                      .max_num_seqs = 4,
                      .max_model_len = 16,
                      .prefix_caching = PrefixCaching::kOff});  // 20 tokens in a step
  h.add(12, 3);
  Request& r = h.request(10, 3);
  r.sampling.n = 2;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(h.scheduler.add(h.sequence(r)));
  EXPECT_EQ(h.step(), "1:12@0");
  h.add(2, 2);
  EXPECT_THAT(steps(h, 6), ElementsAre("2:10@0", "3:1@9", "1:1@12 2:1@10 3:1@10",
                                       "1:1@13 2:1@11 3:1@11", "4:2@0", "4:1@2"));
}

// With a second step in flight the batch decodes before the leader's prompt is committed.
TEST(GoldenSchedule, ChoicesJoinTheirBatchLate) {
  SchedulerHarness h({.policy = "request-level", .max_in_flight = 2});
  Request& r = h.request(10, 4);
  r.sampling.n = 2;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(h.scheduler.add(h.sequence(r)));
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:10@0");
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@10");
  h.add(3, 2);  // not of this batch
  h.commit();
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@11 2:1@9");
  h.commit();
  h.commit();
  EXPECT_THAT(steps(h, 5), ElementsAre("1:1@12 2:1@10", "2:1@11", "2:1@12", "3:3@0", "3:1@3"));
}

// Two micro-batches share the running sequences: no sequence is in both, none takes more than half.
TEST(GoldenSchedule, MicroBatchesAreBalanced) {
  SchedulerHarness h({.max_num_seqs = 6, .max_in_flight = 2, .micro_batches = 2});
  for (int i = 0; i < 5; ++i) h.add(2, 9);
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:2@0 2:2@0 3:2@0");
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "4:2@0 5:2@0");
  h.commit();
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@2 2:1@2 3:1@2");
  h.scheduler.cancel(*h.sequences[3]);
  h.scheduler.cancel(*h.sequences[4]);
  h.commit();
  // Three run, two at most in a micro-batch; all three are in flight.
  EXPECT_TRUE(h.plan().empty());
  h.commit();
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@3 2:1@3");
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "3:1@3");
  h.commit();
  h.commit();
  h.run_to_end();
}

// More decodes than budget: all of them run, and no chunk is negative.
TEST(GoldenSchedule, DecodesBeyondTheBudget) {
  SchedulerHarness h({.token_budget = 2});
  h.add(1, 20);
  h.add(1, 20);
  h.add(1, 20);
  h.add(1, 20);
  EXPECT_THAT(steps(h, 2), ElementsAre("1:1@0 2:1@0", "1:1@1 2:1@1"));
  // Decodes leave nothing, so prompts wait until a sequence ends.
  EXPECT_THAT(steps(h, 17).back(), "1:1@18 2:1@18");
  EXPECT_THAT(steps(h, 3), ElementsAre("1:1@19 2:1@19", "3:1@0 4:1@0", "3:1@1 4:1@1"));

  SchedulerHarness wide({.token_budget = 3, .max_in_flight = 2});
  for (int i = 0; i < 3; ++i) wide.add(1, 9);
  EXPECT_EQ(SchedulerHarness::describe(wide.plan()), "1:1@0 2:1@0 3:1@0");
  wide.add(1, 9);
  // Three decodes fill the budget exactly; the fourth prompt waits.
  EXPECT_EQ(SchedulerHarness::describe(wide.plan()), "1:1@1 2:1@1 3:1@1");
}

// Two steps in flight: a prompt's next chunk and the first decode are planned while the step before
// still runs.
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

// Sequence 2 names an adapter that is not resident. Its load starts with the plan that first meets
// it, sequence 3 goes first meanwhile, and 2 is admitted by the plan that sees the completion.
TEST(GoldenSchedule, AMissingAdapterIsPassedOver) {
  SchedulerHarness h({.token_budget = 10, .adapters = {.num_slots = 1, .num_adapters = 2}});
  h.executor.hold_transfers();
  h.add(4, 20);
  EXPECT_EQ(h.step(), "1:4@0");
  Sequence& waits = h.add_with_adapter(6, 20, 1);
  h.add(4, 20);
  EXPECT_EQ(h.step(), "1:1@4 3:4@0");
  ASSERT_EQ(h.executor.transfers().size(), 1U);
  EXPECT_EQ(h.executor.transfers()[0].resource, 1);
  EXPECT_THAT(steps(h, 2), ElementsAre("1:1@5 3:1@4", "1:1@6 3:1@5"));
  h.executor.end_transfer(0, false);
  const BatchPlan& plan = h.plan();
  EXPECT_EQ(SchedulerHarness::describe(plan), "1:1@7 3:1@6 2:6@0");
  ASSERT_EQ(plan.assignments.size(), 1U);
  EXPECT_EQ(plan.assignments[0].adapter_slot, 0);
  h.commit();
  EXPECT_THAT(steps(h, 1), ElementsAre("1:1@8 2:1@6 3:1@7"));
  h.run_to_end();
  EXPECT_EQ(waits.tokens, h.expected(waits).tokens);
}

TEST(GoldenSchedule, EveryPolicyPassesOverAMissingAdapter) {
  for (const std::string_view policy : policy_names()) {
    SchedulerHarness h(
        {.policy = std::string(policy), .adapters = {.num_slots = 1, .num_adapters = 2}});
    h.executor.hold_transfers();
    Sequence& waits = h.add_with_adapter(6, 5, 0);
    EXPECT_EQ(h.step(), "") << policy;  // a plan with the load alone
    Sequence& base = h.add(8, 5);
    for (int i = 0; i < 10; ++i) h.step();
    EXPECT_EQ(base.finish_reason, FinishReason::kLength) << policy;
    EXPECT_EQ(waits.state, SequenceState::kWaiting) << policy;
    h.executor.end_transfer(0, false);
    for (int i = 0; i < 10; ++i) h.step();
    EXPECT_EQ(waits.tokens, h.expected(waits).tokens) << policy;
  }
}

// One slot: the sequences of adapter 1 wait until those of adapter 0 have run, those of adapter 0
// that come later wait for their next turn, and base sequences for neither.
TEST(GoldenSchedule, AdaptersTakeTurnsInOneSlot) {
  SchedulerHarness h(
      {.token_budget = 32,
       .adapters = {.num_slots = 1, .num_adapters = 2, .turn = std::chrono::milliseconds(1)}});
  h.add_with_adapter(4, 3, 0);
  EXPECT_THAT(steps(h, 2), ElementsAre("", "1:4@0"));
  h.add_with_adapter(4, 2, 1);  // first in the queue: the slot closes at once
  h.add_with_adapter(4, 2, 0);
  h.add(4, 2);
  EXPECT_THAT(steps(h, 6), ElementsAre("1:1@4 4:4@0",  //
                                       "1:1@5 4:1@4",  // both end: the slot is free
                                       "",             // adapter 1 is loaded
                                       "2:4@0",        // and closed for adapter 0
                                       "2:1@4",        //
                                       ""));           // adapter 0 is loaded
  EXPECT_THAT(steps(h, 2), ElementsAre("3:4@0", "3:1@4"));
}

TEST(GoldenSchedule, AFailedLoadEndsTheSequencesThatWaitForIt) {
  SchedulerHarness h({.adapters = {.num_slots = 1, .num_adapters = 2}});
  h.executor.hold_transfers();
  Sequence& first = h.add_with_adapter(4, 3, 0);
  Sequence& second = h.add_with_adapter(4, 3, 0);
  Sequence& other = h.add_with_adapter(4, 3, 1);
  EXPECT_EQ(h.step(), "");
  h.executor.end_transfer(0, true);
  EXPECT_THAT(h.plan().ended, ElementsAre(&first, &second));
  EXPECT_EQ(first.finish_reason, FinishReason::kNoAdapter);
  ASSERT_EQ(h.executor.transfers().size(), 1U);
  h.executor.end_transfer(0, false);
  h.run_to_end();
  EXPECT_EQ(other.tokens, h.expected(other).tokens);
  // A later request asks again.
  Sequence& later = h.add_with_adapter(4, 3, 0);
  h.step();
  h.executor.end_transfer(0, false);
  h.run_to_end();
  EXPECT_EQ(later.tokens, h.expected(later).tokens);
}

}  // namespace
}  // namespace sluice
