// Sequences that are displaced at any position, with and without names by content: their return
// computes nothing again.
#include <gtest/gtest.h>

#include <string>

#include "scheduler/sequence_names.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

HarnessOptions displaced_memory(std::int32_t tokens) {
  HarnessOptions options;
  options.token_budget = 32;
  options.max_num_seqs = 4;
  options.max_model_len = 160;
  options.num_blocks = tokens / options.block_size + 1;
  options.tier_pages = 200;
  return options;
}

Sequence& add_with(SchedulerHarness& h, Request& request, std::int32_t priority) {
  request.priority = priority;
  Sequence& sequence = h.sequence(request);
  CHECK(h.scheduler.add(sequence).has_value());
  return sequence;
}

Request& nameless(Request& request) {
  request.block_hashes.clear();
  request.block_hash_root.reset();
  return request;
}

struct Lives {
  std::int64_t computed = 0;  // tokens
  std::int64_t needed = 0;
  std::int64_t saved = 0;  // blocks
  std::string return_row;
};

// A sequence with 24 or more outputs is displaced by an urgent one that needs most of the memory.
Lives displace(SchedulerHarness& h, Sequence& low, std::int32_t outputs) {
  Lives lives;
  const auto step = [&] {
    const BatchPlan& plan = h.plan();
    for (const PlanRow& row : plan.rows) {
      lives.computed += row.query_len;
      if (row.sequence == low.id && low.num_preemptions > 0 && lives.return_row.empty()) {
        lives.return_row = SchedulerHarness::describe(plan);
      }
    }
    if (h.committed < h.planned) h.commit();
  };
  while (low.output_len() < outputs) step();
  Sequence& high = add_with(h, h.request(100, 20), -1);
  while (h.scheduler.has_work()) step();
  EXPECT_EQ(low.num_preemptions, 1);
  for (const Sequence* each : {&low, &high}) {
    EXPECT_EQ(each->tokens, h.expected(*each).tokens);
    lives.needed += each->length() - 1;
  }
  h.save_all();
  lives.saved = h.scheduler.paging_stats().saved_blocks;
  return lives;
}

TEST(Displaced, AReturnComputesNothingAgainAtAnyPositionInABlock) {
  for (std::int32_t outputs = 24; outputs < 28; ++outputs) {
    SCOPED_TRACE(outputs);
    SchedulerHarness h(displaced_memory(140));
    Sequence& low = add_with(h, h.request(30, 60), 0);
    const Lives lives = displace(h, low, outputs);
    EXPECT_EQ(lives.computed, lives.needed);
    // Each full block at most once, and the tail, which the tier has forgotten: no sequence can
    // find it any more.
    const std::int64_t full = (low.length() - 1) / 4 + 119 / 4;
    const std::int64_t tail = (30 + outputs - 1) % 4 == 0 ? 0 : 1;
    EXPECT_LE(lives.saved, full + tail);
    EXPECT_EQ(h.kv.tier().num_saved(), lives.saved - tail);
    EXPECT_EQ(h.executor.saved_pages().size(), static_cast<std::size_t>(lives.saved - tail));
    // A decode: one token behind all others.
    EXPECT_EQ(lives.return_row, "1:1@" + std::to_string(30 + outputs - 1));
  }
}

TEST(Displaced, ARequestWithoutNamesComputesNothingAgain) {
  for (std::int32_t outputs = 24; outputs < 28; ++outputs) {
    SCOPED_TRACE(outputs);
    SchedulerHarness h(displaced_memory(140));
    Sequence& low = add_with(h, nameless(h.request(30, 60)), 0);
    const Lives lives = displace(h, low, outputs);
    EXPECT_EQ(lives.computed, lives.needed);
    EXPECT_EQ(lives.return_row, "1:1@" + std::to_string(30 + outputs - 1));
    // Nothing of it stays: only the urgent one's blocks have names that others may look for.
    EXPECT_EQ(h.kv.match_with_tier(names_of(low), low.length()), 0);
    EXPECT_LE(h.kv.tier().num_saved(), 119 / 4);
    EXPECT_LE(h.kv.num_cached_blocks(), 119 / 4);
  }
}

TEST(Displaced, TwoRequestsWithoutNamesNeverShareABlock) {
  SchedulerHarness h(displaced_memory(140));
  Sequence& first = add_with(h, nameless(h.request(30, 30, 7)), 0);
  while (first.output_len() < 10) h.step();
  add_with(h, h.request(100, 20), -1);
  Sequence& twin = add_with(h, nameless(h.request(30, 30, 7)), 0);
  h.run_to_end();
  EXPECT_EQ(first.tokens, h.expected(first).tokens);
  EXPECT_EQ(twin.tokens, h.expected(twin).tokens);
  EXPECT_EQ(twin.cached_prompt_tokens, 0);
}

TEST(Displaced, APromptThatIsDisplacedInTheMiddleGoesOnThere) {
  HarnessOptions options = displaced_memory(140);
  options.token_budget = 7;  // chunks that end within blocks
  SchedulerHarness h(options);
  Sequence& low = add_with(h, h.request(90, 4), 0);
  for (int i = 0; i < 5; ++i) h.step();
  EXPECT_EQ(low.computed, 35);
  add_with(h, h.request(100, 4), -1);
  std::int64_t computed = 35;
  while (h.scheduler.has_work()) {
    for (const PlanRow& row : h.plan().rows) computed += row.query_len;
    if (h.committed < h.planned) h.commit();
  }
  EXPECT_EQ(computed, 93 + 103);
  EXPECT_EQ(low.tokens, h.expected(low).tokens);
}

TEST(Displaced, OneThatIsCancelledWhileItWaitsLeavesNothingPrivate) {
  SchedulerHarness h(displaced_memory(140));
  Sequence& low = add_with(h, nameless(h.request(30, 60)), 0);
  while (low.output_len() < 26) h.step();
  add_with(h, h.request(100, 20), -1);
  while (low.num_preemptions == 0) h.step();
  for (int i = 0; i < 3; ++i) h.step();
  EXPECT_GT(h.kv.tier().num_saved(), 0);
  h.scheduler.cancel(low);
  h.run_to_end();
  h.save_all();
  h.scheduler.check_integrity();
  EXPECT_EQ(h.kv.match_with_tier(names_of(low), low.length()), 0);
  EXPECT_LE(h.kv.tier().num_saved(), 119 / 4);
}

}  // namespace
}  // namespace sluice
