// Pinned prefixes beside requests: requests come first.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

HarnessOptions pin_memory(std::int32_t blocks) {
  HarnessOptions options;
  options.num_blocks = blocks + 1;
  return options;
}

TEST(SchedulerPins, OtherTrafficDoesNotEvictAPinnedPrefix) {
  SchedulerHarness h(pin_memory(24));
  Sequence& first = h.add(41, 2, 7);
  const std::vector<Hash128> prefix = first.request->block_hashes;
  ASSERT_EQ(prefix.size(), 10U);
  h.kv.pin(prefix);
  h.run_to_end();
  for (TokenId seed = 100; seed < 120; ++seed) {
    h.add(45, 6, seed);
    h.run_to_end();
  }
  EXPECT_EQ(h.kv.count_blocks(prefix).in_memory, 10);
  Sequence& again = h.add(41, 2, 7);
  h.run_to_end();
  EXPECT_EQ(again.cached_prompt_tokens, 40);
}

TEST(SchedulerPins, ARequestThatNeedsAllMemoryRuns) {
  for (const char* policy : {"stall-free", "fair", "request-level", "prefill-first"}) {
    HarnessOptions options = pin_memory(24);
    options.policy = policy;
    options.token_budget = 128;
    SchedulerHarness h(options);
    Sequence& first = h.add(61, 2, 7);
    const std::vector<Hash128> prefix = first.request->block_hashes;
    h.kv.pin(prefix);
    h.run_to_end();
    ASSERT_EQ(h.kv.num_pinned_blocks(), 15) << policy;
    Sequence& large = h.add(70, 20, 8);
    h.run_to_end();
    EXPECT_EQ(large.tokens, h.expected(large).tokens) << policy;
    EXPECT_EQ(large.finish_reason, h.expected(large).finish_reason) << policy;
    // The pin holds the prefix again once a request has computed it.
    h.add(61, 2, 7);
    h.run_to_end();
    EXPECT_EQ(h.kv.num_pinned_blocks(), 15) << policy;
  }
}

// Two requests that fit beside each other only without the pin run one after the other.
TEST(SchedulerPins, RequestsThatDoNotFitBesideAPinTakeTurns) {
  SchedulerHarness h(pin_memory(24));
  Sequence& first = h.add(41, 2, 7);
  h.kv.pin(first.request->block_hashes);
  h.run_to_end();
  std::vector<Sequence*> others;
  for (TokenId seed = 200; seed < 206; ++seed) {
    others.push_back(&h.add(40, 12, seed));
  }
  h.run_to_end();
  for (const Sequence* other : others) EXPECT_EQ(other->tokens, h.expected(*other).tokens);
  h.kv.unpin(first.request->block_hashes);
  h.scheduler.check_integrity();
  EXPECT_EQ(h.kv.num_used_blocks(), 0);
}

}  // namespace
}  // namespace sluice
