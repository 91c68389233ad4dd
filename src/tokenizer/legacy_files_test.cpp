#include "tokenizer/legacy_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string merges_text() {
  std::string text = "#version: 0.2\n";
  const nlohmann::json definition = byte_level_json();
  for (const auto& merge : definition["model"]["merges"]) {
    text += merge.get<std::string>() + "\r\n";
  }
  return text;
}

std::string vocab_text() { return dump_json(byte_level_json()["model"]["vocab"]); }

constexpr const char* kConfig = R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|end|>",
    "added_tokens_decoder": {"267": {"content": "<|bos|>", "special": true},
                             "268": {"content": "<|end|>", "special": true, "rstrip": true}}})";

TEST(LegacyFiles, LoadFromADirectory) {
  const auto directory =
      std::filesystem::path(testing::TempDir()) / ("legacy_files_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "vocab.json") << vocab_text();
  std::ofstream(directory / "merges.txt") << merges_text();
  std::ofstream(directory / "tokenizer_config.json") << kConfig;
  const auto tokenizer = Tokenizer::load(directory);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT(*tokenizer->encode("hello<|end|>  world"),
              ElementsAre(kHello, kEnd, 'w', 'o', 262, 'd'));
  EXPECT_EQ(tokenizer->eos_id(), kEnd);
  std::filesystem::remove_all(directory);
}

TEST(LegacyFiles, QwenSplitsDigitsOneByOne) {
  const std::string vocab = vocab_text();
  const std::string merges = merges_text();
  const auto converted =
      convert_legacy_files({vocab, merges, R"({"tokenizer_class": "Qwen2Tokenizer"})"});
  ASSERT_TRUE(converted);
  const auto tokenizer = Tokenizer::from_json(converted->tokenizer_json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT(*tokenizer->encode("12e\u0301"), ElementsAre('1', '2', 0xC3, 0xA9));
}

// The vocabulary with "<|endoftext|>" as id 267, as GPT-2's vocab.json has it.
std::string vocab_with_end() {
  nlohmann::json vocab = byte_level_json()["model"]["vocab"];
  vocab["<|endoftext|>"] = kBos;
  return dump_json(vocab);
}

Tokenizer convert(const LegacyFiles& files) {
  const auto converted = convert_legacy_files(files);
  EXPECT_TRUE(converted) << converted.error().message;
  auto tokenizer =
      Tokenizer::from_json(converted->tokenizer_json, converted->tokenizer_config_json);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

TEST(LegacyFiles, NamedSpecialTokensOfTheVocabularyAreSpecial) {
  const std::string vocab = vocab_text();
  const std::string merges = merges_text();
  const Tokenizer tokenizer = convert({vocab, merges, R"({"eos_token": "hello"})"});
  EXPECT_EQ(tokenizer.decode(std::vector{kHello}, SkipSpecialTokens::kYes), "");
}

TEST(LegacyFiles, EndOfTextIsSpecialWithoutAConfig) {
  const std::string vocab = vocab_with_end();
  const std::string merges = merges_text();
  for (const char* config : {"", R"({"tokenizer_class": "Qwen2Tokenizer"})"}) {
    const Tokenizer tokenizer = convert({vocab, merges, config});
    EXPECT_THAT(*tokenizer.encode("hello<|endoftext|>hello"), ElementsAre(kHello, kBos, kHello));
    EXPECT_EQ(tokenizer.decode(std::vector{kHello, kBos}, SkipSpecialTokens::kYes), "hello");
    EXPECT_EQ(tokenizer.eos_id(), kBos);
    EXPECT_EQ(tokenizer.bos_id().has_value(), std::string_view(config).empty());
  }
}

TEST(LegacyFiles, SpecialTokensMapAndAddedTokensAreRead) {
  const std::string vocab = vocab_with_end();
  const std::string merges = merges_text();
  const Tokenizer tokenizer =
      convert({vocab, merges, "", R"({"eos_token": {"content": "<|im_end|>"},
                                      "additional_special_tokens": ["<|im_start|>"]})",
               R"({"<|im_end|>": 268, "<|im_start|>": 269, "<plain>": 270})"});
  EXPECT_THAT(*tokenizer.encode("<|im_start|>hello<|im_end|><plain>"),
              ElementsAre(269, kHello, 268, 270));
  EXPECT_EQ(tokenizer.decode(std::vector{269, kHello, 268, 270}, SkipSpecialTokens::kYes),
            "hello<plain>");
  EXPECT_EQ(tokenizer.eos_id(), 268);
  EXPECT_EQ(tokenizer.bos_id(), kBos);
}

TEST(LegacyFiles, AbsentEndOfTextIsNotInvented) {
  const std::string vocab = vocab_text();
  const std::string merges = merges_text();
  const Tokenizer tokenizer = convert({vocab, merges});
  EXPECT_FALSE(tokenizer.eos_id());
  EXPECT_EQ(tokenizer.encode("<|endoftext|>")->size(), 13U);
}

TEST(LegacyFiles, BrokenFilesAreNamed) {
  const auto refused = [](std::string_view vocab, std::string_view merges,
                          std::string_view config) {
    const auto converted = convert_legacy_files({vocab, merges, config});
    EXPECT_FALSE(converted);
    return converted ? std::string() : converted.error().message;
  };
  EXPECT_THAT(refused("[1]", "", ""), HasSubstr("vocab.json: not a JSON object"));
  EXPECT_THAT(refused(R"({"a": [[0]]})", "", ""), HasSubstr("vocab.json: 'a' must have a token"));
  EXPECT_THAT(refused("{}", "", R"({"added_tokens_decoder": {"1": {"content": [1]}}})"),
              HasSubstr("added_tokens_decoder['1'] must be a token with content"));
  EXPECT_THAT(refused("{}", "a\xFF b", ""), HasSubstr("merges.txt: not valid UTF-8 at byte off"));
  EXPECT_THAT(refused("{}", "", "{"), HasSubstr("tokenizer_config.json: not a JSON object"));
  EXPECT_THAT(refused("{}", "", R"({"tokenizer_class": "BertTokenizer"})"),
              HasSubstr("tokenizer_class 'BertTokenizer' is not supported"));
  EXPECT_THAT(refused("{}", "", R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
              HasSubstr("added_tokens_decoder['x']"));
}

}  // namespace
}  // namespace sluice
