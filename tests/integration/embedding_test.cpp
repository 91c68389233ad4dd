// Vectors of prompts on the real engine: the same bits however prompts are cut into chunks, cached,
// preempted and mixed; and what they must be, by the model's own logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

using test::EngineFixture;
using test::Results;
using Vector = std::vector<float>;

constexpr std::int32_t kPromptCount = 3;

class EmbeddingTest : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                            checkpoint_.path());
    EngineFixture fixture(checkpoint_.path(), options_with(512), 1);
    const auto vocabulary = static_cast<std::uint64_t>(fixture.engine().limits().vocab_size);
    SplitMix64 random(11);
    for (int i = 0; i < kPromptCount; ++i) {
      std::vector<TokenId> prompt(i == 0 ? 1 : 30 + random.below(40));
      for (TokenId& id : prompt) id = static_cast<TokenId>(random.below(vocabulary));
      last_.push_back(vector_of(fixture, prompt, Pooling::kLastToken));
      mean_.push_back(mean_of_prefixes(fixture, prompt));
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

  static Request pooled(RequestId id, std::vector<TokenId> prompt, Pooling pooling) {
    Request request = test::greedy_request(id, std::move(prompt), 1);
    request.pooling = pooling;
    return request;
  }

  static Vector vector_of(EngineFixture& fixture, const std::vector<TokenId>& prompt,
                          Pooling pooling) {
    fixture.add(pooled(1, prompt, pooling));
    return fixture.run_to_end().at({1, 0}).embedding;
  }

  // The oracle of means: a token's hidden state is that of the prompt which ends with it.
  static Vector mean_of_prefixes(EngineFixture& fixture, const std::vector<TokenId>& prompt) {
    std::vector<double> sum;
    for (std::size_t length = 1; length <= prompt.size(); ++length) {
      const std::vector<TokenId> prefix(prompt.begin(),
                                        prompt.begin() + static_cast<std::ptrdiff_t>(length));
      const Vector state = vector_of(fixture, prefix, Pooling::kLastToken);
      sum.resize(state.size());
      for (std::size_t i = 0; i < state.size(); ++i) sum[i] += static_cast<double>(state[i]);
    }
    Vector mean;
    for (const double value : sum) {
      mean.push_back(static_cast<float>(value / static_cast<double>(prompt.size())));
    }
    return mean;
  }

  // Both kinds of every prompt, twice, beside a stream.
  void run(EngineFixture& fixture) const {
    Results results;
    fixture.add(test::greedy_request(100, prompts_[1], 60));
    for (int i = 0; i < 4; ++i) fixture.step(results);
    for (RequestId id = 0; id < 4 * kPromptCount; ++id) {
      const Pooling pooling = id % 2 == 0 ? Pooling::kLastToken : Pooling::kMean;
      fixture.add(pooled(id, prompts_[id / 2 % kPromptCount], pooling));
    }
    results.merge(fixture.run_to_end());
    for (RequestId id = 0; id < 4 * kPromptCount; ++id) {
      const std::vector<Vector>& wanted = id % 2 == 0 ? last_ : mean_;
      EXPECT_EQ(results.at({id, 0}).embedding, wanted[id / 2 % kPromptCount]) << "request " << id;
      EXPECT_EQ(results.at({id, 0}).finish_reason, FinishReason::kLength);
    }
    EXPECT_TRUE(results.at({100, 0}).embedding.empty());
  }

  TempDirectory checkpoint_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<Vector> last_;
  std::vector<Vector> mean_;
};

TEST_F(EmbeddingTest, TheLastTokensVectorTimesTheHeadIsItsLogits) {
  const auto checkpoint = Checkpoint::open(checkpoint_.path());
  ASSERT_TRUE(checkpoint);
  const TensorInfo* const head = checkpoint->find("model.embed_tokens.weight");  // tied
  ASSERT_NE(head, nullptr);
  const auto* const rows = reinterpret_cast<const float*>(checkpoint->data(*head).data());
  EngineFixture fixture(checkpoint_.path(), options_with(512), 1);
  const auto vocabulary = static_cast<std::size_t>(fixture.engine().limits().vocab_size);
  const Vector& state = last_[1];
  ASSERT_EQ(state.size(), static_cast<std::size_t>(fixture.engine().limits().hidden_size));
  std::vector<double> logits(vocabulary);
  double sum = 0;
  for (std::size_t id = 0; id < vocabulary; ++id) {
    for (std::size_t k = 0; k < state.size(); ++k) {
      logits[id] +=
          static_cast<double>(state[k]) * static_cast<double>(rows[id * state.size() + k]);
    }
    sum += std::exp(logits[id]);
  }
  Request request = test::greedy_request(1, prompts_[1], 1);
  request.sampling.logprobs = 5;
  fixture.add(std::move(request));
  const Results results = fixture.run_to_end();
  ASSERT_FALSE(results.at({1, 0}).logprobs.empty());
  for (const TokenLogprob& entry : results.at({1, 0}).logprobs) {
    const double wanted = logits[static_cast<std::size_t>(entry.token)] - std::log(sum);
    EXPECT_NEAR(static_cast<double>(entry.logprob), wanted, 1e-4);
  }
}

TEST_F(EmbeddingTest, IsTheSameForAnyChunksAndThreads) {
  for (const std::int32_t budget : {1, 7, 64, 512}) {
    SCOPED_TRACE(budget);
    EngineFixture fixture(checkpoint_.path(), options_with(budget), budget % 2 + 1);
    run(fixture);
  }
}

TEST_F(EmbeddingTest, IsTheSameWhenSequencesArePreempted) {
  EngineOptions options = options_with(24);
  options.decode_headroom = 0;
  EngineFixture plenty(checkpoint_.path(), options, 1);
  const std::int64_t per_block = plenty.loaded().kv_bytes / std::max(plenty.loaded().kv_blocks, 1);
  options.kv_cache_memory = (plenty.engine().kv().blocks_needed(150) + 1) * per_block;
  EngineFixture fixture(checkpoint_.path(), options, 1);
  for (RequestId id = 200; id < 204; ++id) {
    fixture.add(test::greedy_request(id, prompts_[2], 80));
  }
  run(fixture);
  EXPECT_GT(fixture.engine().stats().preemptions, 0) << "the test needs preemptions";
}

TEST_F(EmbeddingTest, IsTheSameWithTwoStepsInFlight) {
  EngineOptions options = options_with(24);
  options.steps_in_flight = 2;
  EngineFixture cpu(checkpoint_.path(), options, 1);
  run(cpu);
  EngineFixture late(checkpoint_.path(), options, 1,
                     std::make_unique<test::LateDevice>(*make_cpu_device({.threads = 1})));
  run(late);
}

}  // namespace
}  // namespace sluice
