// The files of sentence-transformers, as version 3 and version 5 write them.
#include "front/embedding_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EmbeddingConfigTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(folder_.path()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // modules.json with Transformer, Pooling and `more`.
  void write_modules(const std::string& more) {
    write(
        "modules.json",
        R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
              {"idx": 1, "name": "1", "path": "1_Pooling",
               "type": "sentence_transformers.models.Pooling"})" +
            more + "]");
  }
  std::string error() {
    const auto config = load_embedding_config(folder_.path());
    return config ? "loads" : config.error().message;
  }

  TempDirectory folder_;
};

constexpr const char* kNormalize =
    R"(, {"idx": 2, "name": "2", "path": "2_Normalize",
          "type": "sentence_transformers.models.Normalize"})";

TEST_F(EmbeddingConfigTest, WithoutFilesTheLastTokenIsNormalized) {
  const auto config = load_embedding_config(folder_.path());
  ASSERT_TRUE(config);
  EXPECT_EQ(config->pooling, Pooling::kLastToken);
  EXPECT_TRUE(config->normalize);
}

TEST_F(EmbeddingConfigTest, FlagsOfOlderFiles) {
  write_modules(kNormalize);
  write("1_Pooling/config.json",
        R"({"word_embedding_dimension": 1024, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true,
            "include_prompt": true})");
  auto config = load_embedding_config(folder_.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->pooling, Pooling::kLastToken);
  EXPECT_TRUE(config->normalize);
  write_modules("");
  write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  config = load_embedding_config(folder_.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->pooling, Pooling::kMean);
  EXPECT_FALSE(config->normalize);
}

TEST_F(EmbeddingConfigTest, TheNameOfNewerFiles) {
  write("modules.json", R"([{"path": "1_Pooling", "type": "sentence_transformers.x.Pooling"}])");
  write("1_Pooling/config.json", R"({"embedding_dimension": 64, "pooling_mode": "mean"})");
  const auto config = load_embedding_config(folder_.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->pooling, Pooling::kMean);
}

TEST_F(EmbeddingConfigTest, OthersAreRefusedByName) {
  write_modules(R"(, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})");
  write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  EXPECT_THAT(error(), HasSubstr("models.Dense"));
  write_modules("");
  write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  EXPECT_THAT(error(), HasSubstr("cls_token"));
  write("1_Pooling/config.json",
        R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})");
  EXPECT_THAT(error(), HasSubstr("several"));
  write("1_Pooling/config.json", "{}");
  EXPECT_THAT(error(), HasSubstr("no pooling"));
  write("1_Pooling/config.json", "[");
  EXPECT_THAT(error(), HasSubstr("1_Pooling/config.json"));
  write("modules.json", "{}");
  EXPECT_THAT(error(), HasSubstr("modules.json"));
}

}  // namespace
}  // namespace sluice
