#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Scheduler, RefusesWhatCannotRun) {
  SchedulerHarness h({.max_model_len = 64, .num_blocks = 9});
  EXPECT_EQ(h.scheduler.add(h.sequence(h.request(0, 4))).error().code, ErrorCode::kInvalidArgument);
  const Status too_long = h.scheduler.add(h.sequence(h.request(64, 4)));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(too_long.error().message, HasSubstr("64 tokens; the context is 64"));
  const Status too_big = h.scheduler.add(h.sequence(h.request(30, 20)));
  ASSERT_FALSE(too_big);
  EXPECT_EQ(too_big.error().code, ErrorCode::kContextLength);
  EXPECT_THAT(too_big.error().message, HasSubstr("13 KV blocks for 49 tokens"));
  const Status no_tokens = h.scheduler.add(h.sequence(h.request(3, 0)));
  ASSERT_FALSE(no_tokens);
  EXPECT_THAT(no_tokens.error().message, HasSubstr("max_tokens"));
  EXPECT_FALSE(h.scheduler.has_work());
  // Exactly what fits: 33 tokens, of which the last is never computed.
  EXPECT_TRUE(h.scheduler.add(h.sequence(h.request(30, 3))));
  h.run_to_end();
  EXPECT_EQ(h.sequences.back()->output_len(), 3);
}

TEST(Scheduler, MaxTokensIsCutByTheContext) {
  SchedulerHarness h({.max_model_len = 16});
  const Sequence& s = h.add(10, INT32_MAX);
  h.run_to_end();
  EXPECT_EQ(s.tokens.size(), 16U);
  EXPECT_EQ(s.finish_reason, FinishReason::kLength);
}

TEST(Scheduler, EndsAtEosUnlessIgnoredOrTooEarly) {
  for (const bool ignore : {false, true}) {
    for (const std::int32_t min_tokens : {0, 12}) {
      SchedulerHarness h;
      h.model.eos_ids = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};  // the executor's model: 1 token in 100
      SchedulerHarness other;
      Request& r = h.request(5, 100);
      r.sampling.ignore_eos = ignore;
      r.sampling.min_tokens = min_tokens;
      Scheduler scheduler(
          {.token_budget = 64, .max_num_seqs = 8, .max_model_len = 128, .eos_ids = h.model.eos_ids},
          h.kv, make_policy("stall-free").value());
      Sequence& s = h.sequence(r);
      ASSERT_TRUE(scheduler.add(s));
      while (scheduler.has_work()) {
        scheduler.plan(h.now, ResourceView{}, h.plans[0]);
        ASSERT_TRUE(h.executor.submit(h.plans[0]));
        ASSERT_TRUE(h.executor.collect(h.result));
        scheduler.commit(h.plans[0], h.result, h.now, h.commits);
      }
      EXPECT_EQ(s.tokens, h.expected(s).tokens);
      EXPECT_EQ(s.finish_reason, h.expected(s).finish_reason);
      EXPECT_GT(s.output_len(), min_tokens);
    }
  }
}

TEST(Scheduler, EndsAtAStopId) {
  SchedulerHarness h;
  Request& r = h.request(5, 100);
  Sequence& s = h.sequence(r);
  const std::vector<TokenId> unstopped = h.expected(s).tokens;
  r.sampling.stop_token_ids = {unstopped[9]};  // the fifth output
  ASSERT_TRUE(h.scheduler.add(s));
  h.run_to_end();
  EXPECT_EQ(s.finish_reason, FinishReason::kStop);
  EXPECT_LE(s.tokens.size(), 10U);
  EXPECT_EQ(s.tokens, h.expected(s).tokens);
}

TEST(Scheduler, AFailedRowEndsItsSequenceOnly) {
  SchedulerHarness h;
  const Sequence& a = h.add(4, 8);
  const Sequence& b = h.add(4, 8);
  h.plan();
  ASSERT_TRUE(h.executor.collect(h.result));
  h.result.rows[0].failed = true;
  h.result.rows[0].num_tokens = 0;
  h.scheduler.commit(h.plans[0], h.result, h.now, h.commits);
  ++h.committed;
  EXPECT_EQ(a.finish_reason, FinishReason::kError);
  EXPECT_EQ(a.output_len(), 0);
  EXPECT_EQ(h.kv.match(a.request->block_hashes, 4), 0);  // its blocks are not reused
  h.run_to_end();
  EXPECT_EQ(b.tokens, h.expected(b).tokens);
}

TEST(Scheduler, CancelsTheWaitingAndTheIdleAtOnce) {
  SchedulerHarness h({.max_num_seqs = 1});
  Sequence& running = h.add(4, 50);
  Sequence& waiting = h.add(4, 50);
  h.step();
  h.scheduler.cancel(waiting);
  EXPECT_EQ(waiting.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(h.scheduler.num_waiting(), 0);
  h.scheduler.cancel(running, FinishReason::kStop);
  EXPECT_EQ(running.finish_reason, FinishReason::kStop);
  EXPECT_FALSE(h.scheduler.has_work());
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
  h.scheduler.cancel(running);  // nothing happens
  EXPECT_EQ(running.finish_reason, FinishReason::kStop);
}

TEST(Scheduler, CancelInFlightEndsWithTheLastStep) {
  SchedulerHarness h({.token_budget = 4, .max_in_flight = 2});
  Sequence& s = h.add(20, 50);  // in mid-prefill
  h.plan();
  h.plan();
  h.scheduler.cancel(s);
  EXPECT_NE(s.state, SequenceState::kFinished);
  EXPECT_TRUE(h.plan().empty());
  h.commit();
  EXPECT_NE(s.state, SequenceState::kFinished);
  ASSERT_EQ(h.commit().size(), 2U);
  EXPECT_EQ(h.commits[0].row, 0);
  EXPECT_FALSE(h.commits[0].finished);
  EXPECT_EQ(h.commits[1].row, -1);
  EXPECT_TRUE(h.commits[1].finished);
  EXPECT_EQ(s.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
}

// A sequence that ends while a later step is in flight is reported at once; its slot and blocks
// come back when that step is done, and the row there is discarded.
TEST(Scheduler, OvershootIsDiscarded) {
  SchedulerHarness h({.max_in_flight = 2});
  Request& r = h.request(4, 50);
  Sequence& s = h.sequence(r);
  r.sampling.stop_token_ids = {h.expected(s).tokens[4]};  // the first output
  ASSERT_TRUE(h.scheduler.add(s));
  h.plan();
  EXPECT_EQ(SchedulerHarness::describe(h.plan()), "1:1@4");
  ASSERT_EQ(h.commit().size(), 1U);
  EXPECT_TRUE(h.commits[0].finished);
  EXPECT_EQ(s.finish_reason, FinishReason::kStop);
  EXPECT_EQ(s.output_len(), 1);
  EXPECT_TRUE(h.scheduler.has_work());
  h.sequences.clear();  // the engine may forget it now
  ASSERT_EQ(h.commit().size(), 1U);
  EXPECT_EQ(h.commits[0].sequence, nullptr);
  EXPECT_FALSE(h.scheduler.has_work());
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
}

TEST(Scheduler, PreemptsTheNewestAndLosesNoToken) {
  SchedulerHarness h({.num_blocks = 13, .prefix_caching = PrefixCaching::kOff});
  const Sequence& a = h.add(16, 24);
  const Sequence& b = h.add(16, 24);
  std::vector<SequenceId> preempted;
  while (h.scheduler.has_work()) {
    const auto& ids = h.plan().preempted;
    preempted.insert(preempted.end(), ids.begin(), ids.end());
    h.commit();
  }
  EXPECT_THAT(preempted, ElementsAre(b.id));
  EXPECT_EQ(a.num_preemptions, 0);
  EXPECT_EQ(b.num_preemptions, 1);
  // max_tokens counts over the whole life.
  EXPECT_EQ(b.output_len(), 24);
  EXPECT_EQ(a.tokens, h.expected(a).tokens);
  EXPECT_EQ(b.tokens, h.expected(b).tokens);
}

TEST(Scheduler, ThePreemptedFindTheirBlocksAgain) {
  SchedulerHarness h({.num_blocks = 13});
  const Sequence& b = (h.add(16, 24), h.add(16, 24));
  std::string readmission;
  while (h.scheduler.has_work()) {
    const std::string rows = h.step();
    if (b.num_preemptions == 1 && readmission.empty() && b.state == SequenceState::kRunning) {
      readmission = rows;
    }
  }
  ASSERT_EQ(b.num_preemptions, 1);
  EXPECT_EQ(readmission.find("2:"), readmission.rfind("2:"));
  // Not from the start: some of its blocks, outputs included, survived the wait.
  EXPECT_EQ(readmission.find("@0"), std::string::npos) << readmission;
  EXPECT_EQ(b.tokens, h.expected(b).tokens);
}

// Two steps overlap all the time, so the newer sequence is always in flight when the older one
// needs its block. It must yield at once, not when it happens to need a block itself.
TEST(Scheduler, AVictimInFlightIsHeldBackFirst) {
  SchedulerHarness h({.block_size = 16,
                      .num_blocks = 5,
                      .max_in_flight = 2,
                      .prefix_caching = PrefixCaching::kOff});
  const Sequence& a = h.add(16, 20);
  const Sequence& b = h.add(8, 40);
  int longest_wait = 0;
  int wait = 0;
  while (h.scheduler.has_work()) {
    while (h.planned - h.committed < 2 && !h.plan().empty()) {
    }
    const std::int32_t before = a.output_len();
    h.commit();
    wait = a.state == SequenceState::kRunning && a.output_len() == before ? wait + 1 : 0;
    longest_wait = std::max(longest_wait, wait);
  }
  EXPECT_EQ(a.num_preemptions, 0);
  EXPECT_EQ(b.num_preemptions, 1);
  EXPECT_LE(longest_wait, 2);
  EXPECT_EQ(a.tokens, h.expected(a).tokens);
  EXPECT_EQ(b.tokens, h.expected(b).tokens);
}

// The same with a long prompt after it, whose chunks overlap: a stream must not wait for the end of
// the prompt under any policy.
TEST(Scheduler, AStreamDoesNotWaitForThePromptThatHasItsMemory) {
  for (const char* const policy : {"stall-free", "chunked-only", "unified", "vtc"}) {
    SchedulerHarness h({.policy = policy,
                        .token_budget = 2,
                        .block_size = 16,
                        .num_blocks = 8,
                        .max_in_flight = 2,
                        .prefix_caching = PrefixCaching::kOff});
    h.add(17, 30);                           // 2 blocks, and its decodes go on
    const Sequence& stream = h.add(16, 10);  // 1 block, and needs another with its first decode
    const Sequence& prompt = h.add(60, 2);   // the other 4 blocks, for 30 chunks
    int longest_wait = 0;
    int wait = 0;
    while (stream.state != SequenceState::kFinished) {
      while (h.planned - h.committed < 2 && !h.plan().empty()) {
      }
      const std::int32_t before = stream.output_len();
      h.commit();
      wait = stream.output_len() == before && stream.output_len() > 0 ? wait + 1 : 0;
      longest_wait = std::max(longest_wait, wait);
    }
    EXPECT_LE(longest_wait, 4) << policy;
    h.run_to_end();
    EXPECT_EQ(stream.tokens, h.expected(stream).tokens);
    EXPECT_EQ(prompt.tokens, h.expected(prompt).tokens);
  }
}

TEST(Scheduler, LowerPriorityNumbersRunFirst) {
  SchedulerHarness h({.max_num_seqs = 1});
  Sequence& later = h.sequence(h.request(4, 2));
  Request& urgent_request = h.request(4, 2);
  urgent_request.priority = -1;
  Sequence& urgent = h.sequence(urgent_request);
  ASSERT_TRUE(h.scheduler.add(later));
  ASSERT_TRUE(h.scheduler.add(urgent));
  EXPECT_EQ(h.step(), "2:4@0");
}

TEST(Scheduler, TheHeadIsNotOvertaken) {
  SchedulerHarness h({.num_blocks = 12});
  h.add(20, 10);
  h.step();
  h.add(24, 8);  // does not fit beside the first
  h.add(4, 2);   // would
  EXPECT_EQ(h.step(), "1:1@20");
  EXPECT_EQ(h.scheduler.num_waiting(), 2);
}

// 128 choices of a long prompt would else hold 129 copies of it in the queue.
TEST(Scheduler, ASequenceThatWaitsHoldsNoCopyOfItsPrompt) {
  SchedulerHarness h({.max_num_seqs = 2});
  Request& r = h.request(30, 5);
  r.sampling.n = 4;
  for (int i = 0; i < 4; ++i) {
    h.sequence(r).tokens = std::vector<TokenId>();
    ASSERT_TRUE(h.scheduler.add(*h.sequences.back()));
  }
  EXPECT_EQ(h.step(), "1:30@0");
  EXPECT_EQ(h.step(), "1:1@30 2:1@29");
  EXPECT_GE(h.sequences[1]->tokens.capacity(), 35U);
  for (const std::size_t waiting : {2U, 3U}) {
    EXPECT_EQ(h.sequences[waiting]->tokens.capacity(), 0U);
    EXPECT_EQ(h.sequences[waiting]->length(), 30);
    EXPECT_EQ(h.sequences[waiting]->output_len(), 0);
  }
  h.scheduler.cancel(*h.sequences[3]);
  h.run_to_end();
  for (const std::size_t ran : {0U, 1U, 2U}) {
    EXPECT_EQ(h.sequences[ran]->tokens, h.expected(*h.sequences[ran]).tokens);
  }
}

TEST(Scheduler, AConversationFindsItsOutputs) {
  SchedulerHarness h;
  const Sequence& first = h.add(10, 7, 300);
  h.run_to_end();
  Request& next = h.request(1, 4);
  next.prompt = first.tokens;
  next.prompt.push_back(77);
  next.block_hashes =
      BlockHasher(*next.block_hash_root, h.kv.block_size()).hash_prompt(next.prompt);
  Sequence& second = h.sequence(next);
  ASSERT_TRUE(h.scheduler.add(second));
  EXPECT_EQ(h.step(), "2:2@16");  // 17 tokens, of which the last was never computed
  EXPECT_EQ(second.cached_prompt_tokens, 16);
  h.run_to_end();
  EXPECT_EQ(second.tokens, h.expected(second).tokens);
}

TEST(Scheduler, AnotherChoiceLeadsWhenTheFirstIsGone) {
  SchedulerHarness h({.token_budget = 4, .prefix_caching = PrefixCaching::kOff});
  Request& r = h.request(10, 3);
  r.sampling.n = 3;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(h.scheduler.add(h.sequence(r)));
  EXPECT_EQ(h.step(), "1:4@0");
  h.scheduler.cancel(*h.sequences[0]);
  EXPECT_EQ(h.step(), "2:4@0");
  EXPECT_EQ(h.step(), "2:4@4");
  EXPECT_EQ(h.step(), "2:2@8");
  EXPECT_EQ(h.step(), "2:1@10 3:1@9");
  h.run_to_end();
  EXPECT_EQ(h.sequences[1]->tokens, h.expected(*h.sequences[1]).tokens);
  EXPECT_EQ(h.sequences[2]->tokens, h.expected(*h.sequences[2]).tokens);
}

TEST(Scheduler, TimesComeFromTheCaller) {
  SchedulerHarness h({.token_budget = 4});
  const Sequence& s = h.add(6, 3);
  h.now = TimePoint{Duration(5)};
  h.step();
  h.now = TimePoint{Duration(9)};
  h.step();
  h.now = TimePoint{Duration(11)};
  h.step();
  EXPECT_EQ(s.first_scheduled, TimePoint{Duration(5)});
  EXPECT_EQ(s.first_token, TimePoint{Duration(9)});
}

TEST(Policies, AreMadeByName) {
  for (const std::string_view name : policy_names()) {
    EXPECT_EQ(make_policy(name).value()->name(), name);
  }
  EXPECT_EQ(policy_names().front(), "stall-free");
  const auto unknown = make_policy("stallfree");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.error().message, HasSubstr("use one of: stall-free"));
}

}  // namespace
}  // namespace sluice
