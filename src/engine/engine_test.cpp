// The step loop on a fake executor: what comes out, when, and what happens when things fail.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include "kv/block_hash.h"
#include "tests/support/fake_engine.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class EngineTest : public testing::TestWithParam<int> {  // steps in flight
 protected:
  void SetUp() override { make({}); }

  void make(FakeEngineOptions options) {
    options.steps_in_flight = GetParam();
    engine_ = make_fake_engine(model_, clock_, options);
  }

  static Request request(RequestId id, int prompt_len, int max_tokens) {
    Request r;
    r.id = id;
    for (int i = 0; i < prompt_len; ++i) {
      r.prompt.push_back((static_cast<TokenId>(id) * 7 + i * 3) % 49 + 1);
    }
    r.sampling.max_tokens = max_tokens;
    return r;
  }

  // Its blocks have names under `salt`.
  static Request salted_request(RequestId id, const char* salt, std::vector<TokenId> prompt) {
    Request r;
    r.id = id;
    r.prompt = std::move(prompt);
    r.sampling.max_tokens = 20;
    r.sampling.ignore_eos = true;
    r.sampling.seed = 5;
    KvIdentity identity;
    identity.block_size = FakeEngineOptions{}.block_size;
    identity.tenant_salt = salt;
    r.block_hash_root = block_hash_root(identity);
    r.block_hashes = BlockHasher(*r.block_hash_root, identity.block_size).hash_prompt(r.prompt);
    return r;
  }

  struct Seen {
    std::vector<TokenId> tokens;
    FinishReason reason = FinishReason::kNone;
    int ends = 0;
  };
  using SeenChoices = std::map<std::pair<RequestId, int>, Seen>;

  void step(SeenChoices& seen) {
    const auto outputs = engine_->step();
    ASSERT_TRUE(outputs) << outputs.error().message;
    for (const ChoiceOutput& output : *outputs) {
      Seen& s = seen[{output.request, output.choice}];
      s.tokens.insert(s.tokens.end(), output.tokens.begin(), output.tokens.end());
      s.reason = output.finish_reason;
      s.ends += output.finish_reason != FinishReason::kNone;
    }
    engine_->check_integrity();
  }
  SeenChoices run() {
    SeenChoices seen;
    while (engine_->has_work() && !HasFatalFailure()) step(seen);
    return seen;
  }

  FakeModel model_;
  ManualClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineTest, EveryChoiceGetsTheTokensOfTheModel) {
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 12; ++id) {
    requests.push_back(request(id, 1 + static_cast<int>(id) * 3, 5 + static_cast<int>(id)));
    requests.back().sampling.n = 1 + static_cast<int>(id % 3);
    ASSERT_TRUE(engine_->add_request(requests.back()));
  }
  const SeenChoices seen = run();
  for (const Request& r : requests) {
    for (int choice = 0; choice < r.sampling.n; ++choice) {
      const ExpectedOutput expected = expected_output(model_, r, choice, 100);
      const Seen& s = seen.at({r.id, choice});
      const std::vector<TokenId> output(
          expected.tokens.begin() + static_cast<std::ptrdiff_t>(r.prompt.size()),
          expected.tokens.end());
      EXPECT_EQ(s.tokens, output) << r.id << " " << choice;
      EXPECT_EQ(s.reason, expected.finish_reason);
      EXPECT_EQ(s.ends, 1);
    }
  }
  EXPECT_EQ(engine_->num_requests(), 0U);
  EXPECT_EQ(engine_->kv().num_used_blocks(), 0);
}

TEST_P(EngineTest, TokensAreCountedByWhatTheyAreComputedFor) {
  Request long_one = request(1, 40, 10);  // three chunks; its first token comes with the last
  Request short_one = request(2, 1, 4);
  for (Request* r : {&long_one, &short_one}) {
    r->sampling.ignore_eos = true;
    ASSERT_TRUE(engine_->add_request(*r));
  }
  run();
  EXPECT_EQ(engine_->stats().prefill_tokens, 41);
  EXPECT_EQ(engine_->stats().decode_tokens, 9 + 3);
}

TEST_P(EngineTest, HugeMaxTokensEndsAtTheContextWithLength) {
  Request r = request(1, 10, std::numeric_limits<std::int32_t>::max());
  r.sampling.ignore_eos = true;
  ASSERT_TRUE(engine_->add_request(r));
  const SeenChoices seen = run();
  EXPECT_EQ(seen.at({1, 0}).tokens.size(), 90U);
  EXPECT_EQ(seen.at({1, 0}).reason, FinishReason::kLength);
}

TEST_P(EngineTest, WrongRequestsAreRefusedWithTheField) {
  const auto refused = [&](Request r, ErrorCode code, const char* what) {
    const auto status = engine_->add_request(std::move(r));
    ASSERT_FALSE(status) << what;
    EXPECT_EQ(status.error().code, code);
    EXPECT_THAT(status.error().message, HasSubstr(what));
  };
  refused(request(1, 0, 5), ErrorCode::kInvalidArgument, "prompt");
  refused(request(1, 100, 5), ErrorCode::kInvalidArgument, "prompt has 100 tokens");
  refused(request(1, 5, 0), ErrorCode::kInvalidArgument, "max_tokens");
  refused(request(1, 5, -3), ErrorCode::kInvalidArgument, "max_tokens");
  Request token = request(1, 5, 5);
  token.prompt[3] = 50;
  refused(token, ErrorCode::kInvalidArgument, "token 50");
  token.prompt[3] = -1;
  refused(token, ErrorCode::kInvalidArgument, "token -1");
  Request adapter = request(1, 5, 5);
  adapter.adapter = 0;
  refused(adapter, ErrorCode::kNotFound, "adapter 0");
  ASSERT_TRUE(engine_->add_request(request(7, 5, 5)));
  refused(request(7, 5, 5), ErrorCode::kInvalidArgument, "id 7");
  EXPECT_EQ(engine_->num_requests(), 1U);
}

TEST_P(EngineTest, CancelAtAnyMomentEndsEachChoiceOnceAndFreesItsBlocks) {
  for (int steps = 0; steps < 12; ++steps) {
    Request r = request(1, 37, 8);
    r.sampling.n = 2;
    r.sampling.ignore_eos = true;
    ASSERT_TRUE(engine_->add_request(r));
    SeenChoices seen;
    for (int i = 0; i < steps && engine_->has_work(); ++i) step(seen);
    engine_->cancel(1);
    engine_->cancel(1);
    while (engine_->has_work()) step(seen);
    for (int choice = 0; choice < 2; ++choice) {
      const Seen& s = seen.at({1, choice});
      EXPECT_EQ(s.ends, 1) << steps;
      EXPECT_TRUE(s.reason == FinishReason::kCancelled || s.tokens.size() == 8U) << steps;
    }
    EXPECT_EQ(engine_->kv().num_used_blocks(), 0);
    EXPECT_EQ(engine_->num_requests(), 0U);
  }
  engine_->cancel(99);  // unknown: ignored
}

TEST_P(EngineTest, OneChoiceMayEndWhileTheOtherGoesOn) {
  Request r = request(1, 6, 20);
  r.sampling.n = 2;
  r.sampling.ignore_eos = true;
  ASSERT_TRUE(engine_->add_request(r));
  SeenChoices seen;
  while (seen[{1, 0}].tokens.size() < 3) step(seen);
  engine_->end_choice(1, 0, FinishReason::kStop);
  while (engine_->has_work()) step(seen);
  EXPECT_EQ((seen[{1, 0}].reason), FinishReason::kStop);
  EXPECT_LT((seen[{1, 0}].tokens.size()), 20U);
  EXPECT_EQ((seen[{1, 1}].reason), FinishReason::kLength);
  EXPECT_EQ((seen[{1, 1}].tokens.size()), 20U);
}

TEST_P(EngineTest, AnExecutorsErrorFailsTheEngineForGood) {
  make({.good_steps = 3});
  ASSERT_TRUE(engine_->add_request(request(1, 60, 20)));
  ASSERT_TRUE(engine_->add_request(request(2, 5, 20)));
  std::optional<Error> error;
  for (int i = 0; i < 100 && !error; ++i) {
    const auto outputs = engine_->step();
    if (!outputs) error = outputs.error();
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kUnavailable);
  EXPECT_THAT(error->message, HasSubstr("caught fire"));
  EXPECT_FALSE(engine_->has_work());
  EXPECT_EQ(engine_->num_requests(), 0U);
  engine_->cancel(1);
  const auto again = engine_->step();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUnavailable);
  const auto added = engine_->add_request(request(3, 5, 5));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kUnavailable);
}

TEST_P(EngineTest, AFailedRowEndsItsSequenceAlone) {
  model_.fail_one_in = 30;
  for (RequestId id = 1; id <= 20; ++id) {
    Request r = request(id, 4, 10);
    r.sampling.ignore_eos = true;
    r.sampling.seed = id;
    ASSERT_TRUE(engine_->add_request(r));
  }
  int failed = 0;
  for (const auto& [choice, s] : run()) {
    EXPECT_EQ(s.ends, 1);
    failed += s.reason == FinishReason::kError;
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 20);
  EXPECT_EQ(engine_->kv().num_used_blocks(), 0);
}

TEST_P(EngineTest, ShrinkingKvMemoryEndsOnlyTheSequenceThatNeedsMore) {
  Request large = request(1, 16, 60);
  Request small = request(2, 8, 4);
  for (Request* r : {&large, &small}) {
    r->sampling.ignore_eos = true;
    ASSERT_TRUE(engine_->add_request(*r));
  }
  SeenChoices seen;
  step(seen);
  engine_->set_kv_limit(7);
  while (engine_->has_work() && !HasFatalFailure()) step(seen);
  EXPECT_EQ(seen.at({1, 0}).reason, FinishReason::kNoMemory);
  EXPECT_EQ(seen.at({1, 0}).ends, 1);
  EXPECT_EQ(seen.at({2, 0}).reason, FinishReason::kLength);
  EXPECT_EQ(seen.at({2, 0}).tokens.size(), 4U);
  EXPECT_EQ(engine_->kv().num_used_blocks(), 0);
  EXPECT_EQ(engine_->num_requests(), 0U);
}

TEST_P(EngineTest, WaitingForATransferNeitherFailsNorSpins) {
  FakeExecutor* executor = nullptr;
  make({.adapters = {.num_slots = 1, .num_adapters = 2},
        .on_executor = [&](FakeExecutor& e) { executor = &e; }});
  executor->hold_transfers();
  Request r = request(1, 8, 3);
  r.adapter = 1;
  r.sampling.ignore_eos = true;
  ASSERT_TRUE(engine_->add_request(r));
  SeenChoices seen;
  for (int i = 1; i <= 5; ++i) {
    step(seen);
    EXPECT_TRUE(engine_->has_work());
    EXPECT_EQ(executor->waits(), i - 1);  // the first step starts the transfer
  }
  // A request of the base model runs meanwhile, and no step waits.
  Request base = request(2, 8, 3);
  base.sampling.ignore_eos = true;
  ASSERT_TRUE(engine_->add_request(base));
  while (seen[{2, 0}].ends == 0 && !HasFatalFailure()) step(seen);
  EXPECT_EQ(executor->waits(), 4);
  executor->end_transfer(0, false);
  while (engine_->has_work() && !HasFatalFailure()) step(seen);
  const ExpectedOutput expected = expected_output(model_, r, 0, 100);
  EXPECT_TRUE(std::ranges::equal(seen.at({1, 0}).tokens, std::span(expected.tokens).subspan(8)));
}

TEST_P(EngineTest, AFailedLoadEndsItsRequestsAlone) {
  make({.adapters = {.num_slots = 1, .num_adapters = 2},
        .on_executor = [](FakeExecutor& e) { e.fail_transfers(true); }});
  Request r = request(1, 8, 3);
  r.adapter = 0;
  r.sampling.n = 2;
  ASSERT_TRUE(engine_->add_request(r));
  ASSERT_TRUE(engine_->add_request(request(2, 8, 3)));
  const SeenChoices seen = run();
  for (const int choice : {0, 1}) {
    EXPECT_EQ(seen.at({1, choice}).reason, FinishReason::kNoAdapter);
    EXPECT_EQ(seen.at({1, choice}).ends, 1);
  }
  EXPECT_NE(seen.at({2, 0}).reason, FinishReason::kNoAdapter);
  EXPECT_EQ(engine_->num_requests(), 0U);
}

TEST_P(EngineTest, MemoryGrowsWithNeedAndIsReturnedWhenIdle) {
  make({.num_blocks = 4,
        .max_blocks = 100,
        .chunk_blocks = 4,
        .kv_idle_release = std::chrono::milliseconds(50)});
  for (RequestId id = 1; id <= 6; ++id) ASSERT_TRUE(engine_->add_request(request(id, 30, 20)));
  run();
  EXPECT_GT(engine_->kv().num_usable_blocks(), 30);
  EXPECT_FALSE(engine_->has_work());
  SeenChoices seen;
  step(seen);  // notes when it became quiet
  EXPECT_EQ(engine_->wake_at(), clock_.now() + std::chrono::milliseconds(50));
  clock_.advance(std::chrono::milliseconds(50));
  step(seen);
  EXPECT_EQ(engine_->kv().num_usable_blocks(), 3);
  EXPECT_EQ(engine_->wake_at(), std::nullopt);
  ASSERT_TRUE(engine_->add_request(request(7, 30, 20)));
  EXPECT_EQ(run().at({7, 0}).ends, 1);
}

// A tier takes blocks again without telling anybody, so an engine without work looks each second.
TEST_P(EngineTest, UnsavedBlocksAreSavedOnceTheTierTakesThem) {
  FakeExecutor* executor = nullptr;
  make({.tier_pages = 64, .on_executor = [&](FakeExecutor& e) { executor = &e; }});
  executor->accept_saves(false);
  ASSERT_TRUE(engine_->add_request(salted_request(1, "s", {1, 2, 3, 4, 5, 6, 7, 8, 9})));
  run();
  EXPECT_EQ(engine_->stats().saved_blocks, 0);
  EXPECT_FALSE(engine_->has_work());
  EXPECT_EQ(engine_->wake_at(), clock_.now() + std::chrono::seconds(1));
  executor->accept_saves(true);
  EXPECT_TRUE(engine_->has_work());
  run();
  EXPECT_GE(engine_->stats().saved_blocks, 2);
  EXPECT_EQ(engine_->wake_at(), std::nullopt);
}

// The disk has a block that is counted, also if the process dies at once.
TEST_P(EngineTest, SavedBlocksCountOnceTheyAreSaved) {
  FakeExecutor* executor = nullptr;
  make({.tier_pages = 64, .on_executor = [&](FakeExecutor& e) { executor = &e; }});
  executor->hold_transfers();
  SeenChoices seen;
  const auto run_one = [&](RequestId id) {
    ASSERT_TRUE(engine_->add_request(salted_request(id, "s", {1, 2, 3, 4, 5, 6, 7, 8, 9})));
    while (seen[{id, 0}].ends == 0 && !HasFatalFailure()) step(seen);
  };
  run_one(1);
  run_one(2);
  ASSERT_GE(executor->transfers().size(), 2U);
  EXPECT_EQ(engine_->stats().saved_blocks, 0);
  executor->end_transfer(0, /*failed=*/false);
  executor->end_transfer(0, /*failed=*/true);
  run_one(3);
  EXPECT_EQ(engine_->stats().saved_blocks, 1);
  EXPECT_EQ(engine_->stats().failed_transfers, 1);
}

// Request::block_hash_root is per request: the blocks of prompts and of outputs are named under it.
TEST_P(EngineTest, TenantsWithDifferentSaltsShareNoBlocks) {
  // Runs one request to its end: what it found in the cache, and prompt and output.
  const auto run_one = [&](Request r, std::vector<TokenId>& all) {
    const RequestId id = r.id;
    all = r.prompt;
    EXPECT_TRUE(engine_->add_request(std::move(r)));
    std::int32_t cached = -1;
    while (engine_->has_work()) {
      const auto outputs = engine_->step();
      if (!outputs) break;
      for (const ChoiceOutput& output : *outputs) {
        EXPECT_EQ(output.request, id);
        cached = output.cached_prompt_tokens;
        all.insert(all.end(), output.tokens.begin(), output.tokens.end());
      }
    }
    return cached;
  };
  const std::vector<TokenId> prompt = request(1, 37, 1).prompt;
  std::vector<TokenId> first;
  std::vector<TokenId> other;
  std::vector<TokenId> again;
  EXPECT_EQ(run_one(salted_request(1, "tenant-a", prompt), first), 0);
  EXPECT_EQ(run_one(salted_request(2, "tenant-b", prompt), other), 0);
  EXPECT_EQ(run_one(salted_request(3, "tenant-a", prompt), again), 36);
  EXPECT_EQ(first, other);
  EXPECT_EQ(first, again);
  EXPECT_EQ(engine_->kv().prefix_stats().queried_tokens, 3 * 37);
  EXPECT_EQ(engine_->kv().prefix_stats().hit_tokens, 36);
  // A second turn after the output: the last token of 57 was never computed.
  first.resize(58, 7);
  EXPECT_EQ(run_one(salted_request(4, "tenant-c", first), again), 0);
  EXPECT_EQ(run_one(salted_request(5, "tenant-a", first), again), 56);
  EXPECT_EQ(run_one(salted_request(6, "", first), again), 0);
}

// From each place, also at the edges of blocks: the tokens are the rest of the undisturbed run's,
// and those of the first life are not reported again.
TEST_P(EngineTest, AResumedRequestGoesOnBehindItsOutputs) {
  Request whole = salted_request(1, "salt", request(1, 10, 20).prompt);
  ASSERT_TRUE(engine_->add_request(whole));
  const std::vector<TokenId> all = run().at({1, 0}).tokens;
  ASSERT_EQ(all.size(), 20U);
  for (std::size_t said = 1; said < all.size(); ++said) {
    make({});  // nothing is in memory
    Request again = whole;
    again.resumed.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(said));
    ASSERT_TRUE(engine_->add_request(std::move(again)));
    const SeenChoices seen = run();
    const Seen& s = seen.at({1, 0});
    EXPECT_EQ(s.tokens,
              std::vector<TokenId>(all.begin() + static_cast<std::ptrdiff_t>(said), all.end()))
        << said;
    EXPECT_EQ(s.reason, FinishReason::kLength);
    EXPECT_EQ(s.ends, 1);
  }
}

TEST_P(EngineTest, OutputsThatARequestCannotGoOnFromAreRefused) {
  const Request whole = salted_request(1, "salt", request(1, 10, 20).prompt);
  Request at_the_end = whole;
  at_the_end.resumed.assign(20, 1);  // max_tokens
  EXPECT_FALSE(engine_->add_request(std::move(at_the_end)));
  Request beyond_context = whole;
  beyond_context.sampling.max_tokens = 1000;
  beyond_context.resumed.assign(90, 1);
  EXPECT_FALSE(engine_->add_request(std::move(beyond_context)));
  for (const TokenId token : {-1, engine_->limits().vocab_size}) {
    Request wrong_token = whole;
    wrong_token.resumed = {1, token};
    const Status status = engine_->add_request(std::move(wrong_token));
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("not its own"));
  }
  EXPECT_EQ(engine_->num_requests(), 0U);
}

TEST_P(EngineTest, ProgressAndFirstScheduledTellHowFarARequestIs) {
  Request r = request(1, 37, 8);
  r.sampling.n = 2;
  r.sampling.ignore_eos = true;
  clock_.advance(Duration(100));
  ASSERT_TRUE(engine_->add_request(r));
  std::vector<RequestProgress> progress;
  engine_->append_progress(progress);
  ASSERT_EQ(progress.size(), 1U);
  EXPECT_EQ(progress[0].prompt_tokens, 37);
  EXPECT_EQ(progress[0].computed_tokens + progress[0].output_tokens + progress[0].running, 0);
  EXPECT_EQ(progress[0].waiting, 2);
  clock_.advance(Duration(11));
  bool seen = false;
  while (engine_->has_work()) {
    const auto outputs = engine_->step();
    ASSERT_TRUE(outputs);
    clock_.advance(Duration(1));
    for (const ChoiceOutput& output : *outputs) {
      // The second choice waits until the first has computed the prompt.
      const bool at_once = output.first_scheduled == TimePoint{Duration(111)};
      EXPECT_EQ(at_once, output.choice == 0);
      if (output.choice != 1 || output.finish_reason != FinishReason::kNone || seen) continue;
      seen = true;
      progress.clear();
      engine_->append_progress(progress);
      ASSERT_EQ(progress.size(), 1U);
      EXPECT_GE(progress[0].computed_tokens, 37);
      EXPECT_GE(progress[0].output_tokens, 2);
      EXPECT_EQ(progress[0].running, 2);
    }
  }
  EXPECT_TRUE(seen);
  engine_->cancel_all();  // no request is left
  for (RequestId id = 1; id <= 12; ++id) ASSERT_TRUE(engine_->add_request(request(id, 20, 9)));
  ASSERT_TRUE(engine_->step());
  engine_->cancel_all();
  int cancelled = 0;
  for (const auto& [choice, s] : run()) {
    cancelled += s.reason == FinishReason::kCancelled;
  }
  EXPECT_EQ(cancelled, 12);
  EXPECT_EQ(engine_->kv().num_used_blocks(), 0);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, EngineTest, testing::Values(1, 2));

}  // namespace
}  // namespace sluice
