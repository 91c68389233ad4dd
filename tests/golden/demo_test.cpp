// The demo model, end to end, against golden continuations (tools/demo_model/make_goldens.py):
// chat template, tokenizer, logits after the prompt, greedy tokens and their text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/chat_file.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/support/decoder_harness.h"
#include "tests/support/engine_fixture.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

constexpr const char* kModel = "models/demo";
constexpr const char* kGoldens = "tests/golden/demo";

class DemoTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(kGoldens)) {
      GTEST_SKIP() << kGoldens << " is missing; tools/demo_model/make_goldens.py writes it";
    }
    for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
      if (entry.path().extension() != ".json") continue;
      goldens_.push_back(parse_ordered_json(read_file(entry.path(), 1 << 26).value()));
    }
    ASSERT_FALSE(goldens_.empty());
  }

  static std::vector<TokenId> ids(const ordered_json& golden, const char* key) {
    return golden.at(key).get<std::vector<TokenId>>();
  }

  std::vector<ordered_json> goldens_;
};

TEST_F(DemoTest, PromptsRenderAndTokenizeAsInTransformers) {
  const auto tokenizer = Tokenizer::load(kModel);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto templates = ChatTemplates::load(kModel);
  ASSERT_TRUE(templates);
  for (const ordered_json& golden : goldens_) {
    SCOPED_TRACE(golden.at("name"));
    if (golden.at("messages").is_null()) {
      const auto prompt = tokenizer->encode(golden.at("prompt_text").get<std::string>());
      ASSERT_TRUE(prompt);
      EXPECT_EQ(*prompt, ids(golden, "prompt_ids"));
      continue;
    }
    const ordered_json chat = {{"messages", golden.at("messages")},
                               {"add_generation_prompt", true}};
    const auto prompt = chat_prompt_from_json(*templates, dump_json(chat), "golden", *tokenizer);
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_EQ(prompt->text, golden.at("prompt_text"));
    EXPECT_EQ(prompt->ids, ids(golden, "prompt_ids"));
  }
}

TEST_F(DemoTest, GreedyTokensAndTextAreEqual) {
  EngineOptions options;
  options.dtype = DType::kF32;  // the reference is float64 on the stored weights
  test::EngineFixture fixture(kModel, options, 2);
  const auto tokenizer = Tokenizer::load(kModel);
  ASSERT_TRUE(tokenizer);
  for (std::size_t i = 0; i < goldens_.size(); ++i) {
    const auto output = ids(goldens_[i], "output_ids");
    Request request = test::greedy_request(i, ids(goldens_[i], "prompt_ids"),
                                           static_cast<std::int32_t>(output.size()));
    request.sampling.ignore_eos = false;
    fixture.add(request);
  }
  const test::Results results = fixture.run_to_end();
  for (std::size_t i = 0; i < goldens_.size(); ++i) {
    SCOPED_TRACE(goldens_[i].at("name"));
    const test::ChoiceResult& result = results.at({i, 0});
    EXPECT_EQ(result.tokens, ids(goldens_[i], "output_ids"));
    EXPECT_EQ(result.finish_reason,
              goldens_[i].at("finished").get<bool>() ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(tokenizer->decode(result.tokens, SkipSpecialTokens::kYes),
              goldens_[i].at("output_text"));
  }
}

TEST_F(DemoTest, FirstLogitsAgree) {
  test::HarnessOptions options;
  options.dtype = DType::kF32;
  options.max_tokens = 256;
  options.context = 256;
  test::DecoderHarness harness(kModel, options);
  for (const ordered_json& golden : goldens_) {
    SCOPED_TRACE(golden.at("name"));
    const auto prompt = ids(golden, "prompt_ids");
    ASSERT_LE(prompt.size(), 256U);
    const auto last = static_cast<std::int32_t>(prompt.size()) - 1;
    const auto logits = test::prompt_logits(harness, prompt, {last});
    for (const auto& entry : golden.at("first_logits")) {
      const auto id = entry.at(0).get<std::size_t>();
      EXPECT_NEAR(static_cast<double>(logits[0][id]), entry.at(1).get<double>(), 2e-4) << id;
    }
  }
}

}  // namespace
}  // namespace sluice
