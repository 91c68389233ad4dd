// Log-probabilities of prompts on the real engine: bit for bit those of sampling the prompt's next
// token after each of its prefixes, however the prompt is cut into chunks and whatever else runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

using test::ChoiceResult;
using test::EngineFixture;
using test::Results;

constexpr int kPrompts = 4;
constexpr std::int32_t kAlternatives = 3;
constexpr std::int32_t kOutput = 30;

class PromptLogprobsTest : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                            checkpoint_.path());
    EngineFixture fixture(checkpoint_.path(), options_with(512), 1);
    vocab_size_ = fixture.engine().limits().vocab_size;
    SplitMix64 random(7);
    for (int i = 0; i < kPrompts; ++i) {
      std::vector<TokenId> prompt;
      const std::uint64_t length = i == 0 ? 1 : 60 + random.below(60);
      for (std::uint64_t k = 0; k < length; ++k) {
        prompt.push_back(
            static_cast<TokenId>(random.below(static_cast<std::uint64_t>(vocab_size_))));
      }
      expected_.push_back(score_by_sampling(fixture, prompt));
      prompts_.push_back(std::move(prompt));
    }
  }

  static EngineOptions options_with(std::int32_t token_budget) {
    EngineOptions options;
    options.max_num_seqs = 6;
    options.max_model_len = 160;
    options.block_size = 4;
    options.token_budget = token_budget;
    return options;
  }

  // The oracle: samples after every prefix, with no other token allowed than the prompt's next.
  static std::vector<TokenLogprob> score_by_sampling(EngineFixture& fixture,
                                                     const std::vector<TokenId>& prompt) {
    std::vector<TokenLogprob> scores;
    for (std::size_t i = 1; i < prompt.size(); ++i) {
      Request request = test::greedy_request(
          i, {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(i)}, 1);
      request.sampling.allowed_token_ids = {prompt[i]};
      request.sampling.logprobs = kAlternatives;
      fixture.add(std::move(request));
      const Results results = fixture.run_to_end();
      const ChoiceResult& choice = results.begin()->second;
      scores.insert(scores.end(), choice.logprobs.begin(), choice.logprobs.end());
    }
    return scores;
  }

  Request scored(RequestId id, std::int32_t n) const {
    Request request = test::greedy_request(id, prompts_[id % prompts_.size()], kOutput);
    request.sampling.prompt_logprobs = kAlternatives;
    request.sampling.n = n;
    request.sampling.temperature = 0.8F;
    return request;
  }

  void expect_scores(const Results& results, RequestId id) const {
    const std::vector<TokenLogprob>& wanted = expected_[id % prompts_.size()];
    const std::vector<PromptLogprob>& got = results.at({id, 0}).prompt_logprobs;
    ASSERT_EQ(got.size(), wanted.size()) << "request " << id;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].token, wanted[i].token) << "request " << id << ", entry " << i;
      EXPECT_EQ(got[i].logprob, wanted[i].logprob) << "request " << id << ", entry " << i;
    }
  }

  static void check_ranks(const std::vector<PromptLogprob>& scores) {
    constexpr std::size_t kEach = 1 + kAlternatives;
    for (std::size_t i = 0; i < scores.size(); i += kEach) {
      const auto first = scores.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      const auto same = std::find_if(first, first + kAlternatives, [&](const PromptLogprob& one) {
        return one.token == scores[i].token;
      });
      if (same != first + kAlternatives) {
        EXPECT_EQ(scores[i].rank, same->rank);
      } else {
        EXPECT_GT(scores[i].rank, kAlternatives);
      }
      EXPECT_EQ(first->rank, 1);
    }
  }

  // Scored requests with one and three choices, beside others that decode.
  void run(EngineFixture& fixture) {
    Results results;
    fixture.add(test::greedy_request(100, prompts_[1], 30));
    for (int i = 0; i < 4; ++i) fixture.step(results);
    for (RequestId id = 1; id <= 8; ++id) fixture.add(scored(id, id % 3 == 0 ? 3 : 1));
    results.merge(fixture.run_to_end());
    for (RequestId id = 1; id <= 8; ++id) {
      expect_scores(results, id);
      check_ranks(results.at({id, 0}).prompt_logprobs);
      EXPECT_EQ(results.at({id, 0}).tokens.size(), std::size_t{kOutput});
      if (id % 3 == 0) {
        EXPECT_TRUE(results.at({id, 2}).prompt_logprobs.empty());
      }
    }
    EXPECT_TRUE(results.at({100, 0}).prompt_logprobs.empty());
  }

  TempDirectory checkpoint_;
  std::int32_t vocab_size_ = 0;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<std::vector<TokenLogprob>> expected_;
};

TEST_F(PromptLogprobsTest, AreTheSameForAnyChunks) {
  for (const std::int32_t budget : {1, 7, 64, 512}) {
    SCOPED_TRACE(budget);
    EngineFixture fixture(checkpoint_.path(), options_with(budget), 2);
    run(fixture);
  }
}

TEST_F(PromptLogprobsTest, AreTheSameUnderEveryPolicyThatSplitsPrompts) {
  for (const char* policy : {"chunked-only", "vtc", "unified"}) {
    SCOPED_TRACE(policy);
    EngineOptions options = options_with(48);
    options.scheduler = policy;
    EngineFixture fixture(checkpoint_.path(), options, 1);
    run(fixture);
  }
}

TEST_F(PromptLogprobsTest, AreReportedOnceWhenSequencesArePreempted) {
  EngineOptions options = options_with(40);
  options.decode_headroom = 0;  // admit as many as fit now, so that some are preempted
  EngineFixture plenty(checkpoint_.path(), options, 1);
  const std::int64_t per_block = plenty.loaded().kv_bytes / std::max(plenty.loaded().kv_blocks, 1);
  options.kv_cache_memory = (plenty.engine().kv().blocks_needed(150) + 5) * per_block;
  EngineFixture fixture(checkpoint_.path(), options, 1);
  run(fixture);
  EXPECT_GT(fixture.engine().stats().preemptions, 0) << "the test needs preemptions";
}

TEST_F(PromptLogprobsTest, AreTheSameWithTwoStepsInFlight) {
  EngineOptions options = options_with(40);
  options.steps_in_flight = 2;
  EngineFixture cpu(checkpoint_.path(), options, 1);
  run(cpu);
  // An asynchronous device, which samples the other requests itself.
  EngineFixture late(checkpoint_.path(), options, 1,
                     std::make_unique<test::LateDevice>(*make_cpu_device({.threads = 1})));
  run(late);
}

TEST_F(PromptLogprobsTest, AreRefusedByPoliciesThatNeverSplitPrompts) {
  for (const char* policy : {"hybrid", "hybrid-only", "prefill-first", "request-level"}) {
    EngineOptions options = options_with(40);
    options.scheduler = policy;
    EngineFixture fixture(checkpoint_.path(), options, 1);
    const Status status = fixture.engine().add_request(scored(1, 1));
    ASSERT_FALSE(status) << policy;
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find("never splits a prompt"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
