// KV memory by need: growth ahead of need, its refusal, return when idle, and limits.
#include "scheduler/kv_sizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// One step: its rows, and "kv=N" when the plan names a size.
std::string step_with_kv(SchedulerHarness& h) {
  const BatchPlan& plan = h.plan();
  std::string line = SchedulerHarness::describe(plan);
  if (plan.kv_blocks > 0) line += " kv=" + std::to_string(plan.kv_blocks);
  if (h.committed < h.planned) h.commit();
  return line;
}

std::vector<std::string> steps_with_kv(SchedulerHarness& h, int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) lines.push_back(step_with_kv(h));
  return lines;
}

// Memory comes in chunks of 4 blocks of 4 tokens. One block of reserve for the one decode: growth
// is asked for by the step that takes the last block, and is there when the next one is needed.
TEST(KvSizer, GoldenGrowthAheadOfNeed) {
  SchedulerHarness h({.token_budget = 8, .num_blocks = 4, .max_blocks = 12, .chunk_blocks = 4});
  Sequence& a = h.add(8, 20);
  EXPECT_THAT(steps_with_kv(h, 6), ElementsAre("1:8@0",       // blocks 1 and 2
                                               "1:1@8 kv=8",  // block 3, the last
                                               "1:1@9", "1:1@10", "1:1@11",
                                               "1:1@12"));  // block 4
  EXPECT_THAT(steps_with_kv(h, 13),
              ElementsAre("1:1@13", "1:1@14", "1:1@15", "1:1@16", "1:1@17", "1:1@18", "1:1@19",
                          "1:1@20", "1:1@21", "1:1@22", "1:1@23",
                          "1:1@24 kv=12",  // block 7, the last
                          "1:1@25"));
  h.run_to_end();
  EXPECT_EQ(a.tokens, h.expected(a).tokens);
}

// With two steps in flight and eight decodes no row ever waits for memory.
TEST(KvSizer, NoDecodeWaitsForGrowth) {
  SchedulerHarness h({.token_budget = 64,
                      .num_blocks = 8,
                      .max_in_flight = 2,
                      .max_blocks = 400,
                      .chunk_blocks = 8});
  for (int i = 0; i < 8; ++i) h.add(8, 100);
  int growths = 0;
  while (h.sequences.back()->output_len() < 2) h.step();
  for (int i = 0; i < 80; ++i) {
    while (h.planned - h.committed < 2) {
      const BatchPlan& plan = h.plan();
      ASSERT_EQ(plan.rows.size(), 8U) << i;
      growths += plan.kv_blocks > 0 ? 1 : 0;
    }
    h.commit();
  }
  EXPECT_GE(growths, 10);
}

// The prompt needs more than there is: the plan without rows grows, the next one admits it.
TEST(KvSizer, AnAdmissionWaitsForGrowthAndEvictsNothing) {
  SchedulerHarness h({.num_blocks = 8, .max_blocks = 16, .chunk_blocks = 8});
  h.add(16, 1, 100);
  h.run_to_end();
  EXPECT_EQ(h.kv.num_free_cached_blocks(), 4);
  h.add(20, 1, 500);  // 5 blocks; 3 are fresh
  EXPECT_THAT(steps_with_kv(h, 2), ElementsAre(" kv=16", "2:20@0"));
  EXPECT_EQ(h.kv.num_cached_blocks(), 9);
}

TEST(KvSizer, RefusedGrowthEvictsAndThenPreempts) {
  SchedulerHarness h({.num_blocks = 8, .max_blocks = 16, .chunk_blocks = 8});
  h.executor.refuse_growth(true);
  h.add(16, 1, 100);  // leaves 4 cached blocks, 3 are fresh
  h.run_to_end();
  h.add(20, 9, 500);
  EXPECT_EQ(step_with_kv(h), " kv=16");
  EXPECT_EQ(step_with_kv(h), "2:20@0");  // evicts
  EXPECT_EQ(h.kv.num_usable_blocks(), 7);
  h.now = h.now + milliseconds(500);
  h.add(8, 9, 700);  // the last 2 blocks, with none to spare for decodes: waits
  EXPECT_EQ(step_with_kv(h), "2:1@20");
  // Nothing is asked for until a second has passed.
  h.now = h.now + milliseconds(499);
  EXPECT_EQ(step_with_kv(h), "2:1@21");
  h.now = h.now + milliseconds(1);
  EXPECT_EQ(step_with_kv(h), "2:1@22 kv=16");
  h.now = h.now + milliseconds(1000);
  h.executor.refuse_growth(false);
  EXPECT_EQ(step_with_kv(h), "2:1@23 kv=16");
  EXPECT_EQ(step_with_kv(h), "2:1@24 3:8@0");
}

TEST(KvSizer, ASequenceThatIsAloneEndsWhenGrowthIsRefused) {
  SchedulerHarness h({.num_blocks = 4, .max_blocks = 16, .chunk_blocks = 4});
  h.executor.refuse_growth(true);
  Sequence& a = h.add(8, 20);
  Sequence& b = h.add(4, 4);
  h.run_to_end();
  EXPECT_EQ(a.finish_reason, FinishReason::kNoMemory);
  EXPECT_EQ(a.length(), 13);  // 3 blocks, and the token after them
  EXPECT_EQ(b.tokens, h.expected(b).tokens);
}

// A stream (1) decodes; the prompt of another request (2) has made memory grow. After 10 ms of
// quiet the next step of the stream drops what the request left in the cache and moves the block
// above the new end; two chunks hold the stream and its reserve. When the stream has ended too, all
// goes but the chunk of the start.
TEST(KvSizer, GoldenIdleReleaseWithOneStreamAlive) {
  SchedulerHarness h(
      {.num_blocks = 4, .max_blocks = 32, .chunk_blocks = 4, .kv_idle_release = milliseconds(10)});
  Sequence& stream = h.add(8, 30);
  h.add(40, 2);
  EXPECT_THAT(steps_with_kv(h, 2), ElementsAre("1:8@0 kv=20", "1:1@8 2:40@0"));
  EXPECT_THAT(steps_with_kv(h, 4), ElementsAre("1:1@9 2:1@40", "1:1@10", "1:1@11", "1:1@12"));
  EXPECT_EQ(h.kv.num_cached_blocks(), 12);
  EXPECT_THAT(h.kv.table(1 - 1, 0), ::testing::SizeIs(4));
  EXPECT_GE(h.kv.table(0, 0)[3], 8);  // after those of the request
  h.now = h.now + milliseconds(9);
  EXPECT_EQ(step_with_kv(h), "1:1@13");
  h.now = h.now + milliseconds(1);
  const BatchPlan& plan = h.plan();
  EXPECT_EQ(SchedulerHarness::describe(plan), "1:1@14");
  EXPECT_EQ(plan.kv_blocks, 8);
  EXPECT_EQ(plan.copies.size(), 1U);
  EXPECT_EQ(h.executor.kv_backed_blocks(), 8);
  EXPECT_EQ(h.kv.num_usable_blocks(), 7);
  h.commit();
  h.now = h.now + std::chrono::seconds(5);
  EXPECT_EQ(step_with_kv(h), "1:1@15");  // once
  h.run_to_end();
  EXPECT_EQ(stream.tokens, h.expected(stream).tokens);
  // The end of the stream counts as activity, though memory was released before it.
  EXPECT_THAT(h.scheduler.wake_at(), ::testing::Optional(::testing::Le(h.now)));
  EXPECT_EQ(step_with_kv(h), "");  // notes the time
  EXPECT_EQ(h.scheduler.wake_at(), h.now + milliseconds(10));
  h.now = h.now + milliseconds(10);
  EXPECT_EQ(step_with_kv(h), " kv=4");
  EXPECT_EQ(h.scheduler.wake_at(), std::nullopt);
  EXPECT_EQ(step_with_kv(h), "");
}

TEST(KvSizer, IdleMemoryStaysByDefault) {
  SchedulerHarness h({.num_blocks = 4, .max_blocks = 32, .chunk_blocks = 4});
  h.add(40, 2);
  h.run_to_end();
  h.now = h.now + std::chrono::hours(100);
  EXPECT_EQ(step_with_kv(h), "");
  EXPECT_EQ(h.scheduler.wake_at(), std::nullopt);
  EXPECT_EQ(h.kv.num_cached_blocks(), 10);
}

HarnessOptions long_contexts(std::int32_t chunk_blocks) {
  return {.token_budget = 2048,
          .max_model_len = 2048,
          .num_blocks = chunk_blocks,
          .max_blocks = 1200,
          .chunk_blocks = chunk_blocks,
          .kv_idle_release = milliseconds(10)};
}

// A release moves the stream's blocks down in several plans, at most `most` in each, while the
// stream goes on.
void move_down(SchedulerHarness& h, const Sequence& stream, std::size_t most) {
  while (stream.output_len() < 2) h.step();
  h.now = h.now + milliseconds(20);
  int moving = 0;
  while (h.kv.num_blocks_above() > 0 || moving == 0) {
    const BatchPlan& plan = h.plan();
    ASSERT_EQ(plan.rows.size(), 1U);
    ASSERT_LE(plan.copies.size(), most);
    ASSERT_LT(++moving, 10);
    h.commit();
  }
  EXPECT_GT(moving, 1);
}

TEST(KvSizer, ALongStreamMovesInSeveralSteps) {
  SchedulerHarness h(long_contexts(16));
  h.add(1200, 1);
  Sequence& stream = h.add(800, 100);
  ASSERT_NO_FATAL_FAILURE(move_down(h, stream, 64));
  EXPECT_LE(h.executor.kv_backed_blocks(), 224);
  h.run_to_end();
  EXPECT_EQ(stream.tokens, h.expected(stream).tokens);
}

// Large blocks, of which a chunk has few: the bytes that a plan copies are limited, not only the
// number of blocks.
TEST(KvSizer, FewLargeBlocksMoveInAPlan) {
  SchedulerHarness h(long_contexts(4));
  h.add(1200, 1);
  Sequence& stream = h.add(100, 100);
  ASSERT_NO_FATAL_FAILURE(move_down(h, stream, 8));
  h.run_to_end();
  EXPECT_EQ(stream.tokens, h.expected(stream).tokens);
}

// A release is under way, a step in flight protects the stream, and the limit falls below what the
// stream holds. A new request ends the release and must not take blocks away from the stream.
TEST(KvSizer, ALimitFallsWhileAReleaseEnds) {
  SchedulerHarness h({.token_budget = 2048,
                      .max_model_len = 2048,
                      .num_blocks = 16,
                      .max_in_flight = 2,
                      .micro_batches = 2,
                      .max_blocks = 1200,
                      .chunk_blocks = 16,
                      .kv_idle_release = milliseconds(10)});
  h.add(1200, 1);
  Sequence& stream = h.add(800, 100);
  while (stream.output_len() < 2) h.step();
  h.now = h.now + milliseconds(20);
  h.plan();
  ASSERT_GT(h.kv.num_blocks_above(), 0);
  h.kv_limit = 100;  // the stream holds 200
  Sequence& late = h.add(64, 2);
  h.plan();
  h.commit();
  h.kv_limit = 0;
  h.run_to_end();
  EXPECT_EQ(stream.tokens, h.expected(stream).tokens);
  EXPECT_EQ(late.tokens, h.expected(late).tokens);
}

// The first needs 15 blocks and has 5, the second needs 3. With 5 usable blocks left the first ends
// where they end, the second is computed again.
TEST(KvSizer, ALimitEndsOnlyTheSequenceThatNeedsMore) {
  SchedulerHarness h({.num_blocks = 21});
  Sequence& large = h.add(16, 44);
  Sequence& small = h.add(8, 4);
  h.step();
  h.kv_limit = 6;
  h.run_to_end();
  EXPECT_EQ(large.finish_reason, FinishReason::kNoMemory);
  EXPECT_EQ(large.length(), 21);
  EXPECT_EQ(small.num_preemptions, 1);
  EXPECT_EQ(small.tokens, h.expected(small).tokens);
  EXPECT_EQ(small.finish_reason, FinishReason::kLength);
  const Status refused = h.scheduler.add(h.sequence(h.request(16, 44)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("limited to 5 of 20 for now"));
  // It never fits.
  const Status too_long = h.scheduler.add(h.sequence(h.request(16, 80)));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::kContextLength);
  h.kv_limit = 0;
  h.step();
  EXPECT_EQ(h.kv.num_usable_blocks(), 20);
}

// A prompt that no longer fits at all ends without holding up those after it.
TEST(KvSizer, AWaitingPromptBeyondTheLimitEndsAtOnce) {
  for (const std::string_view policy : policy_names()) {
    SchedulerHarness h({.policy = std::string(policy), .max_num_seqs = 1, .num_blocks = 40});
    h.add(8, 4);
    Sequence& large = h.add(60, 2);
    Sequence& small = h.add(8, 4);
    h.step();
    h.kv_limit = 11;
    h.run_to_end();
    EXPECT_EQ(large.finish_reason, FinishReason::kNoMemory) << policy;
    EXPECT_EQ(small.tokens, h.expected(small).tokens) << policy;
  }
}

struct Thrashing {
  int preemptions = 0;
  std::int64_t tokens = 0;  // computed
  std::int64_t steps = 0;
};

// 48 requests of 64 prompt tokens and 100 of output; memory for 26 prompts, or 10 whole sequences.
Thrashing run_tight(std::int32_t decode_headroom) {
  SchedulerHarness h({.token_budget = 256,
                      .max_num_seqs = 24,
                      .max_model_len = 256,
                      .num_blocks = 26 * 16 + 1,
                      .watermark = 0.01,
                      .decode_headroom = decode_headroom,
                      .prefix_caching = PrefixCaching::kOff});
  for (int i = 0; i < 48; ++i) h.add(64, 100);
  Thrashing run;
  while (h.scheduler.has_work()) {
    const BatchPlan& plan = h.plan();
    run.preemptions += static_cast<int>(plan.preempted.size());
    run.tokens += static_cast<std::int64_t>(plan.token_ids.size());
    ++run.steps;
    h.commit();
  }
  return run;
}

// A watermark of 1 % alone admits as many as fit now; most of them are preempted, some again and
// again.
// Memory above the least is borrowed: a sequence that needs it is refused at any limit, and those
// that were accepted end well when the limit falls to the least.
TEST(KvSizer, NoAcceptedSequenceEndsWhenTheLimitFallsToTheLeast) {
  SchedulerHarness h({.token_budget = 64,
                      .num_blocks = 8,
                      .max_blocks = 64,
                      .chunk_blocks = 8,
                      .least_blocks = 8});
  const Status refused = h.scheduler.add(h.sequence(h.request(24, 6)));  // 8 blocks of 4 tokens
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("has 7 that it never lends"));
  for (int i = 0; i < 6; ++i) h.add(16, 13);  // 7 blocks each
  while (h.sequences.back()->output_len() < 4) h.step();
  EXPECT_GT(h.kv.num_used_blocks(), 24);
  h.kv_limit = 8;
  h.step();
  EXPECT_LE(h.kv.num_used_blocks(), 7);
  h.run_to_end();
  for (std::size_t i = 1; i < h.sequences.size(); ++i) {
    EXPECT_EQ(h.sequences[i]->finish_reason, FinishReason::kLength);
    EXPECT_EQ(h.sequences[i]->tokens, h.expected(*h.sequences[i]).tokens);
  }
}

TEST(KvSizer, HeadroomForDecodesStopsThrashing) {
  for (const std::int32_t headroom : {0, 8, 16, 32, 64, 100}) {
    const Thrashing run = run_tight(headroom);
    std::printf("headroom %3d: preemptions %d, tokens %ld, steps %ld\n", headroom, run.preemptions,
                run.tokens, run.steps);
  }
  const Thrashing fixed = run_tight(0);
  const Thrashing some = run_tight(32);
  const Thrashing all = run_tight(100);
  EXPECT_GT(fixed.preemptions, 30);
  EXPECT_LT(some.preemptions, fixed.preemptions / 3);
  EXPECT_LT(some.tokens, fixed.tokens);
  EXPECT_EQ(all.preemptions, 0);
  EXPECT_EQ(all.tokens, 48 * (64 + 99));
}

}  // namespace
}  // namespace sluice
