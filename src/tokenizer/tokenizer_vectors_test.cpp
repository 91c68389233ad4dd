// Real tokenizers against vectors of their reference. The files are large and not ours: their
// place is named by the environment variable SLUICE_SHARED_DATA.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

struct Vectors {
  const char* vectors;
  const char* tokenizer;
};

class ReferenceVectors : public testing::TestWithParam<Vectors> {};

TEST_P(ReferenceVectors, AreEqual) {
  const char* root = std::getenv("SLUICE_SHARED_DATA");
  if (root == nullptr) GTEST_SKIP() << "SLUICE_SHARED_DATA is not set: no real tokenizers";
  const auto tokenizer_file = std::filesystem::path(root) / "tokenizers" / GetParam().tokenizer;
  const auto vectors_file = std::filesystem::path(root) / "vectors" / GetParam().vectors;
  if (!std::filesystem::exists(tokenizer_file) || !std::filesystem::exists(vectors_file)) {
    GTEST_SKIP() << "SLUICE_SHARED_DATA lacks " << tokenizer_file << " or " << vectors_file;
  }
  const auto tokenizer = Tokenizer::load(tokenizer_file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto vectors = parse_json(read_file(vectors_file, 1 << 26).value());
  ASSERT_GT(vectors.size(), 10u);
  const auto restored = Tokenizer::from_image(tokenizer->image(), nullptr);
  ASSERT_TRUE(restored) << restored.error().message;
  for (const auto& vector : vectors) {
    const auto text = vector["text"].get<std::string>();
    const auto expected = vector["ids"].get<std::vector<TokenId>>();
    const auto ids = tokenizer->encode(text, {.add_special_tokens = AddSpecialTokens::kNo});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, expected) << text;
    EXPECT_EQ(*restored->encode(text, {.add_special_tokens = AddSpecialTokens::kNo}), expected);
    StreamingDetokenizer stream(*tokenizer, SkipSpecialTokens::kYes);
    std::string streamed;
    for (const TokenId id : *ids) stream.push(id, streamed);
    stream.finish(streamed);
    EXPECT_EQ(streamed, text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceVectors,
                         testing::Values(Vectors{"llama-bpe.json",
                                                 "llama-3/tokenizer.derived.json"},
                                         Vectors{"qwen2.json", "qwen2/tokenizer.derived.json"},
                                         Vectors{"llama-spm.json", "llama-2/tokenizer.json"},
                                         Vectors{"gpt-2.json", "gpt2/tokenizer.json"},
                                         Vectors{"falcon.json", "falcon/tokenizer.json"},
                                         Vectors{"phi-3.json", "phi-3-mini/tokenizer.json"}));

}  // namespace
}  // namespace sluice
