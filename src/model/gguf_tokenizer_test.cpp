#include "model/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/gguf_merges.h"
#include "tests/support/gguf_files.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Five tokens: three normal ones, a control token and one that the user defined.
GgufBuilder tokenizer_gguf(std::string_view kind) {
  std::string types;
  for (const std::int32_t type : {1, 1, 1, 3, 4}) types += gguf_number(type);
  GgufBuilder builder;
  builder.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", kind)
      .texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>", "<tool>"})
      .array("tokenizer.ggml.token_type", GgufValueType::kI32, 5, types)
      .texts("tokenizer.ggml.merges", {"a b"})
      .text("tokenizer.chat_template", "{{ \"x\" }}\n")
      .u32("tokenizer.ggml.eos_token_id", 3);
  return builder;
}

using TokenizerWriter = Result<std::string> (*)(const GgufMetadata&);

Result<std::string> written(const GgufBuilder& builder, TokenizerWriter writer) {
  const std::string bytes = builder.bytes();
  ASSIGN_OR_RETURN(const GgufHeader header, parse_gguf(std::as_bytes(std::span(bytes)), 0));
  return writer(header.metadata);
}

std::string tokenizer_error(const GgufBuilder& builder) {
  const auto text = written(builder, gguf_tokenizer_json);
  return text ? "no error: " + *text : text.error().message;
}

TEST(GgufTokenizer, BecomesTokenizerJson) {
  const auto text = written(tokenizer_gguf("llama-bpe"), gguf_tokenizer_json);
  ASSERT_TRUE(text) << text.error().message;
  const nlohmann::json root = parse_json(*text);
  ASSERT_TRUE(root.is_object());
  EXPECT_EQ(dump_json(root["model"]["vocab"]), R"({"a":0,"ab":2,"b":1})");
  EXPECT_EQ(dump_json(root["model"]["merges"]), R"(["a b"])");
  EXPECT_TRUE(root["model"]["ignore_merges"].get<bool>());
  ASSERT_EQ(root["added_tokens"].size(), 2U);
  EXPECT_EQ(root["added_tokens"][0]["content"].get<std::string>(), "<|end|>");
  EXPECT_EQ(root["added_tokens"][0]["id"].get<int>(), 3);
  EXPECT_TRUE(root["added_tokens"][0]["special"].get<bool>());
  EXPECT_FALSE(root["added_tokens"][1]["special"].get<bool>());
  EXPECT_FALSE(root.contains("normalizer"));
  // Below an ordinary token.
  std::string types;
  for (const std::int32_t type : {3, 1}) types += gguf_number(type);
  const auto below = written(GgufBuilder()
                                 .text("tokenizer.ggml.model", "gpt2")
                                 .text("tokenizer.ggml.pre", "gpt-2")
                                 .texts("tokenizer.ggml.tokens", {"<|end|>", "a"})
                                 .array("tokenizer.ggml.token_type", GgufValueType::kI32, 2, types)
                                 .texts("tokenizer.ggml.merges", {}),
                             gguf_tokenizer_json);
  ASSERT_TRUE(below) << below.error().message;
  EXPECT_EQ(dump_json(parse_json(*below)["model"]["vocab"]), R"({"<|end|>":0,"a":1})");
  EXPECT_EQ(parse_json(*below)["added_tokens"].size(), 1U);
  const auto qwen = written(tokenizer_gguf("qwen2"), gguf_tokenizer_json);
  ASSERT_TRUE(qwen) << qwen.error().message;
  EXPECT_EQ(parse_json(*qwen)["normalizer"]["type"].get<std::string>(), "NFC");
}

// The tokens of `text` with a vocabulary of ASCII and some pairs: a pair is one token if its
// characters are in one piece.
std::vector<std::string> pieces_of(std::string_view kind, std::string_view text) {
  const auto json = written(tokenizer_gguf(kind), gguf_tokenizer_json);
  if (!json) return {json.error().message};
  nlohmann::json root = parse_json(*json);
  root["model"]["vocab"] = nlohmann::json::object();
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    root["model"]["vocab"][name] = names.size();
    names.push_back(name);
  };
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  root["added_tokens"] = nlohmann::json::array();
  root["model"]["merges"] = nlohmann::json::array();
  for (const std::string_view pair : {"ab", "aB", "Ab", "12", "+/", "'s"}) {
    add(std::string(pair));
    root["model"]["merges"].push_back(std::string{pair[0], ' ', pair[1]});
  }
  const auto tokenizer = Tokenizer::from_json(dump_json(root));
  if (!tokenizer) return {tokenizer.error().message};
  const auto ids = tokenizer->encode(text, {AddSpecialTokens::kNo});
  if (!ids) return {ids.error().message};
  std::vector<std::string> pieces;
  for (const TokenId id : *ids) pieces.push_back(names[static_cast<std::size_t>(id)]);
  return pieces;
}

TEST(GgufTokenizer, KindsSplitTextInTheirWays) {
  EXPECT_THAT(pieces_of("llama-bpe", "ab12+/x's"), ElementsAre("ab", "12", "+/", "x", "'s"));
  EXPECT_THAT(pieces_of("gpt-2", "ab12+/x's"), ElementsAre("ab", "12", "+/", "x", "'s"));
  EXPECT_THAT(pieces_of("smollm", "ab12aB"), ElementsAre("ab", "1", "2", "aB"));
  EXPECT_THAT(pieces_of("qwen2", "ab12aB"), ElementsAre("ab", "1", "2", "aB"));
  EXPECT_THAT(pieces_of("tekken", "ab12aBAbx"), ElementsAre("ab", "1", "2", "a", "B", "Ab", "x"))
      << "a capital letter begins a piece";
  const std::string_view aliases[][2] = {{"llama3", "llama-bpe"},
                                         {"llama-v3", "llama-bpe"},
                                         {"deepseek-r1-qwen", "qwen2"},
                                         {"starcoder", "smollm"},
                                         {"refact", "smollm"}};
  for (const auto& [alias, kind] : aliases) {
    const auto text = written(tokenizer_gguf(alias), gguf_tokenizer_json);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(*text, *written(tokenizer_gguf(kind), gguf_tokenizer_json)) << alias;
  }
}

TEST(GgufTokenizer, BecomesTokenizerConfigJson) {
  const auto text = written(tokenizer_gguf("llama-bpe"), gguf_tokenizer_config_json);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, R"({"add_bos_token":true,"add_eos_token":false,"chat_template":"{{ \"x\" }}\n",)"
                   R"("eos_token":"<|end|>"})");
  const auto outside = written(tokenizer_gguf("qwen2").u32("tokenizer.ggml.bos_token_id", 5),
                               gguf_tokenizer_config_json);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().message, HasSubstr("bos_token_id\": is 5; expected a token below 5"));
}

// An unknown token, a byte, and pieces: by score, then by the length of the left part.
GgufBuilder sentencepiece_gguf(const std::vector<float>& scores) {
  std::string types;
  for (const std::int32_t type : {2, 6, 1, 1, 1, 1, 1}) types += gguf_number(type);
  std::string raw;
  for (const float score : scores) raw += gguf_number(score);
  GgufBuilder builder;
  builder.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"<unk>", "<0x00>", "abc", "bc", "ab", "a", "\u00e9"})
      .array("tokenizer.ggml.token_type", GgufValueType::kI32, 7, types)
      .array("tokenizer.ggml.scores", GgufValueType::kF32, scores.size(), raw)
      .u32("tokenizer.ggml.unknown_token_id", 0);
  return builder;
}

TEST(GgufTokenizer, MergesPiecesByScore) {
  const auto text = written(sentencepiece_gguf({0, 0, -1, -3, -2, -4, -5}), gguf_tokenizer_json);
  ASSERT_TRUE(text) << text.error().message;
  const nlohmann::json root = parse_json(*text);
  EXPECT_EQ(dump_json(root["model"]["merges"]), R"([["a","bc"]])");
  EXPECT_EQ(root["model"]["vocab"].size(), 7U);
  EXPECT_EQ(root["model"]["unk_token"].get<std::string>(), "<unk>");
  ASSERT_EQ(root["added_tokens"].size(), 1U);
  EXPECT_EQ(root["normalizer"]["normalizers"].size(), 2U);
  EXPECT_EQ(root["decoder"]["decoders"].size(), 4U);
  const std::vector<ScoredPiece> pieces = {{"a", -9},  {"b", -9},   {"c", -9},        {"ab", -2},
                                           {"bc", -1}, {"abc", -3}, {"<s>", 0, false}};
  std::string merges;
  for (const PieceMerge& merge : merges_of_pieces(pieces)) {
    merges += std::string(merge.left) + "+" + std::string(merge.right) + " ";
  }
  EXPECT_EQ(merges, "b+c a+b ab+c a+bc ");
  EXPECT_THAT(tokenizer_error(sentencepiece_gguf({0, 0})),
              HasSubstr("\"tokenizer.ggml.scores\": has 2 entries; expected 7"));
}

TEST(GgufTokenizer, RefusesOtherKinds) {
  EXPECT_THAT(tokenizer_error(GgufBuilder().text("tokenizer.ggml.model", "bert")),
              HasSubstr("metadata \"tokenizer.ggml.model\": \"bert\" is not supported"));
  EXPECT_THAT(tokenizer_error(tokenizer_gguf("bloom")),
              HasSubstr("metadata \"tokenizer.ggml.pre\": \"bloom\" is not supported"));
  EXPECT_THAT(tokenizer_error(GgufBuilder()), HasSubstr("\"tokenizer.ggml.model\": is missing"));
  EXPECT_THAT(tokenizer_error(GgufBuilder()
                                  .text("tokenizer.ggml.model", "gpt2")
                                  .text("tokenizer.ggml.pre", "gpt-2")
                                  .texts("tokenizer.ggml.tokens", {"a", "a"})
                                  .array("tokenizer.ggml.token_type", GgufValueType::kI32, 2,
                                         gguf_number(1) + gguf_number(1))),
              HasSubstr("metadata \"tokenizer.ggml.tokens\": \"a\" is given twice"));
  EXPECT_THAT(tokenizer_error(GgufBuilder()
                                  .text("tokenizer.ggml.model", "gpt2")
                                  .text("tokenizer.ggml.pre", "gpt-2")
                                  .texts("tokenizer.ggml.tokens", {"a\xFF"})),
              HasSubstr("is not valid UTF-8"));
}

}  // namespace
}  // namespace sluice
