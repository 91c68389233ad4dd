// Sequences that are larger than memory (stream_lane.h): which step is theirs, which
// sequence waits for which, and exact tokens in random workloads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "scheduler/stream_pages.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 20 blocks of 4 tokens. A piece has 2 blocks, a block holds the slices of 8 layers: 40 blocks of
// positions take two windows of 40 slices and 16 slices of tails, which are 12 blocks.
HarnessOptions streamed_memory() {
  HarnessOptions options;
  options.token_budget = 64;
  options.max_num_seqs = 4;
  options.max_model_len = 240;
  options.num_blocks = 21;
  options.stream = {
      .max_blocks = 60, .num_layers = 8, .piece_blocks = 2, .slices_per_block = 8, .block_size = 4};
  return options;
}

std::vector<std::string> streamed_steps(SchedulerHarness& h, int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(h.step());
  return all;
}

void expect_exact(const SchedulerHarness& h, const Sequence& sequence) {
  EXPECT_EQ(sequence.tokens, h.expected(sequence).tokens) << sequence.id;
}

TEST(Streamed, TakesItsWindowsOnce) {
  SchedulerHarness h(streamed_memory());
  Sequence& long_one = h.add(150, 11);
  EXPECT_EQ(long_one.streamed_blocks, 40);
  EXPECT_THAT(streamed_steps(h, 5),
              ElementsAre("1:64@0", "1:64@64", "1:22@128", "1:1@150", "1:1@151"));
  EXPECT_EQ(h.kv.num_used_blocks(), 12);
  h.run_to_end();
  expect_exact(h, long_one);
  EXPECT_EQ(long_one.finish_reason, FinishReason::kLength);
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
}

TEST(Streamed, SequencesThatFitAreNot) {
  SchedulerHarness h(streamed_memory());
  EXPECT_EQ(h.add(70, 11).streamed_blocks, 0);  // 80 tokens in KV
  EXPECT_EQ(h.add(70, 12).streamed_blocks, 21);
  h.run_to_end();
  for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
}

// While no time passes, steps alternate.
TEST(Streamed, StepsAlternate) {
  SchedulerHarness h(streamed_memory());
  h.add(100, 20);
  h.step();
  h.add(5, 20);
  EXPECT_THAT(streamed_steps(h, 5), ElementsAre("2:5@0", "1:36@64", "2:1@5", "1:1@100", "2:1@6"));
}

TEST(Streamed, OthersGetAsMuchTimeAsItsStepTook) {
  SchedulerHarness h(streamed_memory());
  h.add(100, 20);
  h.add(5, 20);
  EXPECT_EQ(h.step(), "2:5@0");
  h.plan();
  h.now = h.now + std::chrono::milliseconds(30);  // of the streamed step
  h.commit();
  std::vector<std::string> seen;
  for (int i = 0; i < 5; ++i) {
    seen.push_back(h.step());
    h.now = h.now + std::chrono::milliseconds(10);
  }
  EXPECT_THAT(seen, ElementsAre("2:1@5", "2:1@6", "2:1@7", "1:36@64", "2:1@8"));
}

TEST(Streamed, OneRunsAndTheOthersWait) {
  SchedulerHarness h(streamed_memory());
  Sequence& first = h.add(100, 8);
  Sequence& second = h.add(100, 8);
  Sequence& third = h.add(5, 4);
  EXPECT_EQ(h.scheduler.num_waiting(), 3);
  while (first.state != SequenceState::kFinished) h.step();
  EXPECT_EQ(second.state, SequenceState::kWaiting);
  EXPECT_EQ(third.state, SequenceState::kFinished);
  h.run_to_end();
  for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
}

// Younger sequences do not take the memory that it waits for; older ones come first.
TEST(Streamed, WaitsForMemoryBeforeYoungerOnes) {
  SchedulerHarness h(streamed_memory());
  Sequence& running = h.add(40, 8);
  h.step();
  Sequence& older = h.add(40, 8);
  Sequence& long_one = h.add(150, 8);
  Sequence& younger = h.add(5, 4);
  h.step();
  EXPECT_EQ(older.state, SequenceState::kWaiting);
  while (running.state != SequenceState::kFinished) {
    EXPECT_EQ(long_one.state, SequenceState::kWaiting);
    h.step();
  }
  h.step();
  EXPECT_EQ(older.state, SequenceState::kRunning);
  while (older.state != SequenceState::kFinished) {
    EXPECT_EQ(younger.state, SequenceState::kWaiting);
    h.step();
  }
  h.step();
  EXPECT_EQ(long_one.state, SequenceState::kRunning);
  h.run_to_end();
  for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
}

// The only other sequence grows beyond what the windows leave. Whole pieces of 8 tokens are kept.
TEST(Streamed, GivesItsMemoryToOneThatCannotGoOn) {
  SchedulerHarness h(streamed_memory());
  Sequence& other = h.add(30, 40);
  h.step();
  Sequence& long_one = h.add(150, 8);
  std::int32_t computed = 0;
  while (long_one.num_preemptions == 0) {
    computed = long_one.computed;
    h.step();
  }
  EXPECT_EQ(long_one.streamed_kept, computed / 8 * 8);
  EXPECT_GT(computed % 8, 0);
  while (other.state != SequenceState::kFinished) h.step();
  EXPECT_EQ(h.step(), "2:" + std::to_string(long_one.length() - computed / 8 * 8) + "@" +
                          std::to_string(computed / 8 * 8));
  h.run_to_end();
  for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
}

TEST(Streamed, ALowerLimitTakesItsWindowsOrEndsIt) {
  SchedulerHarness h(streamed_memory());
  Sequence& long_one = h.add(150, 8);
  h.step();
  h.kv_limit = 12;
  h.step();
  EXPECT_EQ(long_one.finish_reason, FinishReason::kNoMemory);
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
  EXPECT_FALSE(h.scheduler.has_work());
}

TEST(Streamed, CancelledWhileItWaitsRunsAndIsInFlight) {
  SchedulerHarness h(streamed_memory());
  Sequence& first = h.add(150, 8);
  Sequence& second = h.add(150, 8);
  Sequence& third = h.add(150, 8);
  h.step();
  h.scheduler.cancel(second);
  EXPECT_EQ(second.state, SequenceState::kFinished);
  h.plan();
  h.scheduler.cancel(first);
  h.scheduler.check_integrity();
  EXPECT_NE(first.state, SequenceState::kFinished);
  h.commit();
  EXPECT_EQ(first.finish_reason, FinishReason::kCancelled);
  h.step();
  h.scheduler.cancel(third);
  EXPECT_EQ(third.state, SequenceState::kFinished);
  EXPECT_FALSE(h.scheduler.has_work());
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
}

TEST(Streamed, LostKvEndsIt) {
  SchedulerHarness h(streamed_memory());
  Sequence& long_one = h.add(150, 8);
  h.plan();
  CHECK(h.executor.collect(h.result).has_value());
  h.result.rows.front().lost_kv = true;
  h.scheduler.commit(h.plans[0], h.result, h.now, h.commits);
  EXPECT_EQ(long_one.finish_reason, FinishReason::kLostKv);
  EXPECT_FALSE(h.scheduler.has_work());
  h.scheduler.check_integrity();
}

HarnessOptions with_one_adapter_slot() {
  HarnessOptions options = streamed_memory();
  options.adapters = {.num_slots = 1, .num_adapters = 2, .turn = std::chrono::milliseconds(1)};
  return options;
}

TEST(Streamed, WaitsForItsAdapterWhileOthersGoOn) {
  SchedulerHarness h(with_one_adapter_slot());
  h.executor.hold_transfers();
  Sequence& long_one = h.add_with_adapter(150, 11, 1);
  h.add(8, 20);
  EXPECT_THAT(streamed_steps(h, 2), ElementsAre("2:8@0", "2:1@8"));
  ASSERT_EQ(h.executor.transfers().size(), 1U);
  EXPECT_EQ(h.executor.transfers()[0].resource, 1);
  h.executor.end_transfer(0, false);
  h.now = h.now + std::chrono::seconds(1);
  const BatchPlan& plan = h.plan();
  ASSERT_EQ(plan.assignments.size(), 1U);
  EXPECT_EQ(plan.assignments[0].adapter_slot, 0);
  h.commit();
  h.run_to_end();
  for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
  EXPECT_EQ(long_one.finish_reason, FinishReason::kLength);
}

TEST(Streamed, EndsWhenItsAdapterCannotBeLoaded) {
  SchedulerHarness h(with_one_adapter_slot());
  h.executor.hold_transfers();
  const Sequence& first = h.add_with_adapter(150, 11, 1);
  const Sequence& second = h.add_with_adapter(150, 11, 1);
  const Sequence& base = h.add(150, 11);
  h.step();
  h.executor.end_transfer(0, true);
  h.run_to_end();
  EXPECT_EQ(first.finish_reason, FinishReason::kNoAdapter);
  EXPECT_EQ(second.finish_reason, FinishReason::kNoAdapter);
  EXPECT_EQ(base.finish_reason, FinishReason::kLength);
}

// Otherwise the other adapter would wait until the long answer has ended.
TEST(Streamed, GivesItsAdaptersPlaceToAnotherOne) {
  SchedulerHarness h(with_one_adapter_slot());
  Sequence& long_one = h.add_with_adapter(150, 80, 0);
  for (int i = 0; i < 6; ++i) h.step();
  EXPECT_EQ(long_one.num_preemptions, 0);
  const std::int32_t reached = long_one.computed;
  for (int i = 0; i < 3; ++i) {
    h.now = h.now + std::chrono::seconds(1);
    Sequence& other = h.add_with_adapter(8, 2, 1);
    for (int step = 0; step < 20; ++step) h.step();
    EXPECT_EQ(other.finish_reason, FinishReason::kLength) << i;
  }
  EXPECT_GE(long_one.num_preemptions, 3);
  EXPECT_GT(long_one.computed, reached);
  h.run_to_end();
  for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
}

TEST(Streamed, RefusalsSayWhatIsMissing) {
  SchedulerHarness h(streamed_memory());
  const auto refusal = [&](const Request& request) {
    const auto added = h.scheduler.add(h.sequence(request));
    return added ? std::string() : added.error().message;
  };
  Request& choices = h.request(150, 8);
  choices.sampling.n = 2;
  EXPECT_THAT(refusal(choices), HasSubstr("n above 1"));
  EXPECT_EQ(refusal(h.request(230, 8)), "");  // 60 blocks: 17 of the pool

  HarnessOptions options = streamed_memory();
  options.stream.max_blocks = 40;
  SchedulerHarness small(options);
  const auto added = small.scheduler.add(small.sequence(small.request(160, 8)));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kContextLength);
  EXPECT_THAT(added.error().message, HasSubstr("the 167 tokens exceed the 160 that stream=SIZE"));

  options.stream.max_blocks = 60;
  options.num_blocks = 12;
  SchedulerHarness tiny(options);
  const auto refused = tiny.scheduler.add(tiny.sequence(tiny.request(150, 11)));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("takes 12 KV blocks, there are 11"));
}

// ---------------------------------------------------------------- the prefix cache

HarnessOptions streamed_with_tier() {
  HarnessOptions options = streamed_memory();
  options.tier_pages = 200;
  options.meeting_tokens = 0;
  return options;
}

// A turn of a chat: the tokens so far, and some new ones.
Request& next_turn(SchedulerHarness& h, const Sequence& last, std::int32_t more) {
  Request& request = h.request(more, 4);
  request.prompt.insert(request.prompt.begin(), last.tokens.begin(), last.tokens.end());
  h.set_adapter(request, last.request->adapter);
  request.block_owner = last.request->block_owner;
  return request;
}

TEST(Streamed, TheNextTurnFindsWhatTheLastOneComputed) {
  SchedulerHarness h(streamed_with_tier());
  Sequence& first = h.add(150, 11);
  h.run_to_end();
  h.keep_all();
  // 160 tokens in KV: 40 blocks, of which the answer has three.
  EXPECT_EQ(h.executor.saved_pages().size(), 40U);
  Sequence& second = h.sequence(next_turn(h, first, 20));
  ASSERT_TRUE(h.scheduler.add(second));
  std::string row;
  while (row.empty()) row = h.step();
  EXPECT_EQ(row, "2:21@160");
  EXPECT_EQ(second.cached_prompt_tokens, 160);
  h.run_to_end();
  expect_exact(h, first);
  expect_exact(h, second);
}

// The blocks also serve sequences that fit, and theirs serve streamed ones.
TEST(Streamed, SharesBlocksWithSequencesThatFit) {
  SchedulerHarness h(streamed_with_tier());
  Sequence& small = h.add(40, 5, 7);
  h.run_to_end();
  h.save_all();
  Sequence& large = h.add(150, 5, 7);
  h.run_to_end();
  EXPECT_EQ(large.cached_prompt_tokens, 40);
  h.keep_all();
  Sequence& again = h.add(61, 5, 7);
  h.run_to_end();
  EXPECT_EQ(again.cached_prompt_tokens, 60);
  for (const Sequence* sequence : {&small, &large, &again}) expect_exact(h, *sequence);
}

TEST(Streamed, KeepsBlocksWhileItRuns) {
  SchedulerHarness h(streamed_with_tier());
  Sequence& first = h.add(150, 80);
  while (first.output_len() < 60) h.step();
  EXPECT_GE(h.executor.saved_pages().size(), 36U);
  h.scheduler.cancel(first);
  h.keep_all();
}

// The next stream's blocks are those of this one, so it waits for them.
TEST(Streamed, TheNextStreamWaitsUntilBlocksAreKept) {
  SchedulerHarness h(streamed_with_tier());
  h.executor.hold_transfers();
  h.add(100, 2);
  h.run_to_end();
  EXPECT_TRUE(h.scheduler.keeps_stream());
  Sequence& second = h.add(150, 8);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(h.step(), "");
  h.now = h.now + StreamPages::kMostKeeping;
  EXPECT_EQ(h.step(), "");
  EXPECT_EQ(second.state, SequenceState::kWaiting);
  h.now = h.now + StreamPages::kMostKeeping;
  while (!h.executor.transfers().empty()) h.executor.end_transfer(0, false);
  h.run_to_end();
  expect_exact(h, second);
}

TEST(Streamed, DamagedBlocksAreComputed) {
  SchedulerHarness h(streamed_with_tier());
  Sequence& first = h.add(150, 11);
  h.run_to_end();
  h.keep_all();
  h.add(60, 4);  // takes the memory, so that all must be loaded
  h.run_to_end();
  h.save_all();
  h.executor.fail_transfers(true);
  Sequence& second = h.sequence(next_turn(h, first, 20));
  ASSERT_TRUE(h.scheduler.add(second));
  std::string row;
  while (row.empty()) row = h.step();
  EXPECT_LT(second.cached_prompt_tokens, 160);
  h.executor.fail_transfers(false);
  h.run_to_end();
  expect_exact(h, second);
}

TEST(Streamed, KeepsNothingThatMustNotBeSaved) {
  for (const bool memory_only : {false, true}) {
    SchedulerHarness h(streamed_with_tier());
    Request& request = h.request(150, 4);
    if (memory_only) request.block_owner.memory_only = true;
    if (!memory_only) request.block_hash_root.reset();
    if (!memory_only) request.block_hashes.clear();
    ASSERT_TRUE(h.scheduler.add(h.sequence(request)));
    h.run_to_end();
    h.keep_all();
    EXPECT_TRUE(h.executor.saved_pages().empty());
  }
}

TEST(Streamed, AdaptersDoNotShareBlocks) {
  HarnessOptions options = streamed_with_tier();
  options.adapters = {.num_slots = 2, .num_adapters = 2, .turn = std::chrono::milliseconds(1)};
  SchedulerHarness h(options);
  const Sequence& first = h.add_with_adapter(150, 8, 0);
  h.run_to_end();
  h.keep_all();
  Request& request = h.request(150, 4);
  request.prompt = first.request->prompt;
  h.set_adapter(request, 1);
  Sequence& other = h.sequence(request);
  ASSERT_TRUE(h.scheduler.add(other));
  h.run_to_end();
  EXPECT_EQ(other.cached_prompt_tokens, 0);
  expect_exact(h, other);
}

// Blocks that a failed sequence computed may be wrong.
TEST(Streamed, AFailureForgetsWhatWasKept) {
  SchedulerHarness h(streamed_with_tier());
  Sequence& first = h.add(150, 80);
  while (first.output_len() < 60) h.step();
  EXPECT_FALSE(h.executor.saved_pages().empty());
  h.plan();
  CHECK(h.executor.collect(h.result).has_value());
  h.result.rows.front().failed = true;
  h.scheduler.commit(h.plans[h.committed++ % h.plans.size()], h.result, h.now, h.commits);
  EXPECT_EQ(first.finish_reason, FinishReason::kError);
  while (h.kv.has_wrong_pages() || h.kv.num_paging() > 0) h.plan();
  EXPECT_TRUE(h.executor.saved_pages().empty());
}

// Random arrivals, cancels, limits and times, under all policies: exact tokens, and no block lost.
class StreamedWorkload : public testing::TestWithParam<std::string_view> {
 protected:
  void run(std::uint64_t seed) {
    SplitMix64 rng(seed);
    HarnessOptions options = streamed_memory();
    options.policy = GetParam();
    options.token_budget = static_cast<std::int32_t>(4 + rng.below(60));
    if (rng.below(2) == 0) options.windows = {0, 24};
    if (rng.below(2) == 0) options.prefix_caching = PrefixCaching::kOff;
    options.adapters = {.num_slots = static_cast<std::int32_t>(1 + rng.below(2)),
                        .num_adapters = 3,
                        .turn = std::chrono::microseconds(200)};
    options.decode_headroom = static_cast<std::int32_t>(rng.below(16));
    options.num_blocks = static_cast<std::int32_t>(26 + rng.below(20));
    if (options.prefix_caching == PrefixCaching::kOn && rng.below(3) > 0) {
      options.tier_pages = static_cast<std::int32_t>(20 + rng.below(400));
    }
    SchedulerHarness h(options);
    const bool late = rng.below(2) == 0;
    if (late) h.executor.hold_transfers();
    if (rng.below(3) == 0) h.executor.force_tokens(3);
    for (int step = 0; step < 400; ++step) {
      if (rng.below(6) == 0 && h.scheduler.num_waiting() < 6) arrive(h, rng);
      if (rng.below(25) == 0) cancel_one(h, rng);
      if (rng.below(40) == 0) {
        h.kv_limit = rng.below(2) == 0 ? 0 : options.num_blocks - static_cast<int>(rng.below(10));
      }
      if (late) end_transfers(h, rng);
      h.executor.accept_saves(options.tier_pages > 0 && rng.below(20) > 0);
      h.step();
      h.now = h.now + Duration(static_cast<Duration::rep>(1000 * rng.below(50)));
    }
    h.kv_limit = 0;
    h.executor.accept_saves(options.tier_pages > 0);
    int left = 20'000;
    while (h.scheduler.has_work()) {
      ASSERT_GT(--left, 0) << "no progress, seed " << seed;
      if (late) end_transfers(h, rng);
      h.step();
      h.now = h.now + Duration(static_cast<Duration::rep>(1000 * rng.below(50)));
    }
    while (h.scheduler.keeps_stream() || h.kv.num_paging() + h.kv.num_unsaved() > 0) {
      ASSERT_GT(--left, 0) << "no end of saves, seed " << seed;
      if (late) end_transfers(h, rng);
      EXPECT_FALSE(h.plan().has_rows());
    }
    EXPECT_EQ(h.kv.num_used_blocks(), 0);
    for (const auto& sequence : h.sequences) check_end(h, *sequence);
  }

  static void arrive(SchedulerHarness& h, SplitMix64& rng) {
    const bool is_long = rng.below(3) == 0;
    const auto prompt = static_cast<std::int32_t>(1 + rng.below(is_long ? 200 : 30));
    const auto tokens = static_cast<std::int32_t>(1 + rng.below(30));
    Request& request = h.request(prompt, tokens);
    const Sequence* const last =
        h.sequences.empty() ? nullptr : h.sequences[rng.below(h.sequences.size())].get();
    auto adapter = static_cast<std::int32_t>(rng.below(4)) - 1;
    if (last != nullptr && last->length() + prompt < 210 && rng.below(2) == 0) {
      request.prompt.insert(request.prompt.begin(), last->tokens.begin(), last->tokens.end());
      adapter = last->request->adapter;
    }
    h.set_adapter(request, adapter);
    request.block_owner.memory_only = rng.below(8) == 0;
    Sequence& sequence = h.sequence(request);
    if (!h.scheduler.add(sequence)) sequence.finish_reason = FinishReason::kCancelled;
  }
  static void end_transfers(SchedulerHarness& h, SplitMix64& rng) {
    const std::size_t under_way = h.executor.transfers().size();
    for (std::uint64_t left = rng.below(under_way + 2); left > 0; --left) {
      if (h.executor.transfers().empty()) return;
      const auto index = static_cast<std::size_t>(rng.below(h.executor.transfers().size()));
      const bool adapter = h.executor.transfers()[index].kind == TransferKind::kLoadAdapter;
      h.executor.end_transfer(index, !adapter && rng.below(20) == 0, rng.below(2) == 0);
    }
  }
  static void cancel_one(SchedulerHarness& h, SplitMix64& rng) {
    if (h.sequences.empty()) return;
    Sequence& sequence = *h.sequences[rng.below(h.sequences.size())];
    if (sequence.finish_reason == FinishReason::kNone) h.scheduler.cancel(sequence);
  }
  void check_end(const SchedulerHarness& h, const Sequence& sequence) {
    if (sequence.finish_reason == FinishReason::kCancelled) return;
    if (sequence.finish_reason == FinishReason::kNoMemory) return;
    EXPECT_EQ(sequence.finish_reason, FinishReason::kLength);
    expect_exact(h, sequence);
    streamed_ += sequence.streamed_blocks > 0 ? 1 : 0;
    cached_ += sequence.streamed_blocks > 0 && sequence.cached_prompt_tokens > 0 ? 1 : 0;
    yielded_ += sequence.streamed_blocks > 0 ? sequence.num_preemptions : 0;
  }

  int streamed_ = 0;
  int cached_ = 0;
  int yielded_ = 0;
};

TEST_P(StreamedWorkload, TokensAreExact) {
  for (std::uint64_t seed = 1; seed <= 30 && !HasFatalFailure(); ++seed) run(seed);
  EXPECT_GT(streamed_, 20);
  EXPECT_GT(yielded_, 2);
  EXPECT_GT(cached_, 5);
}

std::string streamed_policy_name(const testing::TestParamInfo<std::string_view>& info) {
  std::string name(info.param);
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == ':'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Policies, StreamedWorkload, testing::ValuesIn(policy_names()),
                         streamed_policy_name);

// Client `a` streams; what that costs counts when its next request waits beside one of `b`.
TEST(Streamed, CountsAsServiceOfItsClient) {
  for (const char* const policy : {"vtc", "fair"}) {
    SCOPED_TRACE(policy);
    HarnessOptions options = streamed_memory();
    options.policy = policy;
    options.max_num_seqs = 2;
    SchedulerHarness h(options);
    const auto add = [&](std::int32_t length, const char* client) {
      Request& request = h.request(length, 2);
      request.client_key = client;
      ASSERT_TRUE(h.scheduler.add(h.sequence(request)));
    };
    add(150, "a");
    add(20, "b");
    add(20, "a");
    add(20, "b");
    std::string order;
    while (h.scheduler.has_work()) {
      const std::string row = h.step();
      h.now = h.now + std::chrono::milliseconds(1);
      if (row.ends_with("@0")) order += row.substr(0, 1);
    }
    EXPECT_EQ(order, "2143");
    for (const auto& sequence : h.sequences) expect_exact(h, *sequence);
  }
}

}  // namespace
}  // namespace sluice
