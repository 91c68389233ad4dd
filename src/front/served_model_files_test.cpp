// Checkpoint files as transformers writes them load without a warning, for every family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "front/prompt_builder.h"
#include "front/served_model.h"
#include "model/generation_defaults.h"
#include "model/model_config.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

constexpr const char* kDirectory = "src/front/testdata/written_by_transformers";

std::vector<std::string> checkpoints() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(kDirectory)) {
    if (entry.is_directory()) paths.push_back(entry.path().string());
  }
  return paths;
}

EngineFacts facts_of(const ModelConfig& config) {
  EngineFacts facts;
  facts.limits = {.vocab_size = config.vocab_size, .max_model_len = 64, .num_adapters = 0};
  facts.block_size = 4;
  facts.kv_identity.block_size = 4;
  return facts;
}

TEST(WrittenByTransformers, ConfigurationsLoadWithoutAWarning) {
  const std::vector<std::string> paths = checkpoints();
  ASSERT_EQ(paths.size(), 8U) << "run from the root of the repository";
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    ::testing::internal::CaptureStderr();
    const auto config = load_model_config(path);
    const auto defaults = load_generation_defaults(path, 320);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    ASSERT_TRUE(config) << config.error().message;
    ASSERT_TRUE(defaults) << defaults.error().message;
    EXPECT_EQ(config->num_layers, 2);
    EXPECT_EQ(config->eos_tokens, std::vector<TokenId>{2});
    EXPECT_EQ(config->ropes.front().theta, 10000.0);
    EXPECT_EQ(defaults->temperature, 0.6);
    EXPECT_EQ(defaults->top_p, 0.9);
  }
}

TEST(WrittenByTransformers, TokenizersAndTemplatesLoadWithoutAWarning) {
  for (const char* name : {"llama_v4", "llama_v5"}) {
    SCOPED_TRACE(name);
    const std::string path = std::string(kDirectory) + "/" + name;
    const auto config = load_model_config(path);
    ASSERT_TRUE(config);
    ::testing::internal::CaptureStderr();
    const auto model = load_served_model(path, "m", 1, facts_of(*config));
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->tokenizer.bos_id(), 1);
    EXPECT_EQ(model->tokenizer.eos_id(), 2);
    PromptWorker worker(*model);
    const auto prompt = worker.from_chat(
        {.messages_json = R"([{"role":"user","content":"ab<tool>b"}])"}, AddSpecialTokens::kNo, "");
    ASSERT_TRUE(prompt) << prompt.error().error.message;
    EXPECT_THAT(prompt->ids, ElementsAre(1, 4, 5, 3));
  }
}

// The same files with what else Python and editors write: a byte-order mark, numbers beyond a
// double, NaN.
TEST(WrittenByTransformers, OddNumbersAndByteOrderMarks) {
  const fs::path copy =
      fs::path(::testing::TempDir()) / ("written_by_transformers_" + std::to_string(getpid()));
  fs::remove_all(copy);
  fs::copy(std::string(kDirectory) + "/llama_v4", copy);
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "special_tokens_map.json"}) {
    std::ifstream in(copy / name);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::ofstream(copy / name) << "\xEF\xBB\xBF{\"odd_big\": 1" << std::string(400, '0')
                               << ", \"odd_exponent\": 1e999, \"odd\": [NaN, -Infinity, "
                                  "1000000000000000019884624838656], "
                               << text.substr(1);
  }
  const auto config = load_model_config(copy.string());
  ASSERT_TRUE(config) << config.error().message;
  const auto defaults = load_generation_defaults(copy.string(), 320);
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, 0.6);
  const auto model = load_served_model(copy.string(), "m", 1, facts_of(*config));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->tokenizer.eos_id(), 2);
  EXPECT_TRUE(model->templates);
  fs::remove_all(copy);
}

}  // namespace
}  // namespace sluice
