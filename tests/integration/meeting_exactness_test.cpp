// The real engine on the CPU with a tier that takes as long for a token as the model: prompts are
// loaded from the back while their front is computed. The tokens and log-probabilities are the
// same, bit for bit, as without a tier.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "scheduler/block_pager.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/memory_tier.h"

namespace sluice {
namespace {

using test::EngineFixture;
using test::Results;

// All layers see all keys.
constexpr const char* kFull = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "max_position_embeddings": 1024, "rms_norm_eps": 1e-05,
  "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

// The last two layers have a sliding window.
constexpr const char* kWindows = R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "max_position_embeddings": 1024, "rms_norm_eps": 1e-05,
  "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 10000.0,
  "use_sliding_window": true, "sliding_window": 128, "max_window_layers": 2,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

constexpr std::int32_t kPrompt = 641;

Request prompt(RequestId id, std::int32_t max_tokens) {
  SplitMix64 random(id);
  Request request;
  request.id = id;
  for (int i = 0; i < kPrompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(random.below(160)));
  }
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = id;
  request.sampling.logprobs = 20;
  request.sampling.ignore_eos = true;
  return request;
}

struct Model {
  const char* name;
  const char* config;
};

class MeetingExactness : public testing::TestWithParam<Model> {};

constexpr RequestId kPrompts = 8;

// The prompts in an engine that has nothing in memory, after prompt `first`, which the tier does
// not have, so that the engine learns how long its steps take. Returns what was paged.
PagingStats expect_same_results(const std::string& checkpoint, const EngineOptions& options,
                                test::MemoryTier::Store& store, RequestId first,
                                const Results& expected) {
  EngineFixture fixture(checkpoint, options, 1, nullptr, nullptr,
                        std::make_unique<test::MemoryTier>(store));
  fixture.add(prompt(first, 1));
  fixture.run_to_end();
  Results results;
  for (RequestId id = 1; id <= kPrompts; ++id) {
    fixture.add(prompt(id, 20));
    results.merge(fixture.run_to_end());
  }
  EXPECT_EQ(results.size(), expected.size());
  for (const auto& [key, result] : results) {
    const test::ChoiceResult& other = expected.at(key);
    EXPECT_EQ(result.tokens, other.tokens) << "request " << key.first;
    EXPECT_EQ(result.logprobs.size(), other.logprobs.size());
    for (std::size_t i = 0; i < std::min(result.logprobs.size(), other.logprobs.size()); ++i) {
      EXPECT_EQ(result.logprobs[i].token, other.logprobs[i].token);
      EXPECT_EQ(result.logprobs[i].logprob, other.logprobs[i].logprob);
    }
  }
  EXPECT_EQ(fixture.engine().kv().num_used_blocks(), 0);
  return fixture.engine().scheduler().paging_stats();
}

TEST_P(MeetingExactness, PromptsThatMeetTheirLoadsHaveTheSameTokens) {
  const TempDirectory checkpoint;
  checkpoint.write("config.json", GetParam().config);
  EngineOptions options;
  options.load_format = LoadFormat::kDummy;
  options.max_num_seqs = 4;
  options.max_model_len = 800;
  options.token_budget = 16;
  options.kv_cache_memory = std::int64_t{64} << 20;
  test::MemoryTier::Store store;
  store.pages.resize(2000);
  Results expected;
  Duration step{0};
  {
    EngineFixture fixture(checkpoint.path(), options, 1, nullptr, nullptr,
                          std::make_unique<test::MemoryTier>(store));
    const SystemClock clock;
    for (RequestId id = 1; id <= kPrompts; ++id) {
      const TimePoint begun = clock.now();
      fixture.add(prompt(id, 20));
      expected.merge(fixture.run_to_end());
      step = (clock.now() - begun) / (kPrompt / 16 + 20);
    }
    // Steps in which blocks are saved.
    Results ignored;
    for (int i = 0; i < 20 && fixture.engine().kv().num_unsaved() > 0; ++i) {
      fixture.add(prompt(1000 + static_cast<RequestId>(i), 64));
      while (fixture.engine().has_work()) fixture.step(ignored);
    }
  }
  ASSERT_GE(store.saves, static_cast<std::int64_t>(kPrompts) * (kPrompt / 16));

  // Other work on the machine makes steps slower than the one that was measured, or faster.
  PagingStats paging;
  RequestId first = 100;
  for (const double pauses : {1.0, 0.7, 0.85, 0.5, 1.4, 0.35, 2.0, 0.25}) {
    store.pause = std::chrono::duration_cast<Duration>(step * pauses);
    paging = expect_same_results(checkpoint.path(), options, store, first++, expected);
    if (paging.met > 0 && paging.hit_tokens > kPrompt) break;
  }
  EXPECT_GT(paging.met, 0);
  EXPECT_GT(paging.hit_tokens, kPrompt);
}

INSTANTIATE_TEST_SUITE_P(Models, MeetingExactness,
                         testing::Values(Model{"Full", kFull}, Model{"Windows", kWindows}),
                         [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace sluice
