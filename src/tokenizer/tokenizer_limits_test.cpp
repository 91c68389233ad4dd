// Limits of encode(): the token limit, its lower bound from bytes, the stop check.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/test_random.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using nlohmann::json;

Tokenizer tokenizer_of(const json& definition) {
  auto tokenizer = Tokenizer::from_json(dump_json(definition));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(TokenLimit, CountsAllTokens) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_json());
  EncodeScratch scratch;
  std::vector<TokenId> ids;
  const std::string text = repeated(" world", 10);
  EXPECT_TRUE(tokenizer.encode(text, {.max_tokens = 10}, scratch, ids));
  EXPECT_EQ(ids.size(), 10u);
  const Status refused = tokenizer.encode(text, {.max_tokens = 9}, scratch, ids);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().message, "text: has more than 9 tokens");
}

TEST(TokenLimit, CountsAddedAndSpecialTokens) {
  json definition = byte_level_json();
  definition["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<|bos|>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"pair", json::array()},
      {"special_tokens", {{"<|bos|>", {{"id", "<|bos|>"}, {"ids", {kBos}}}}}}};
  const Tokenizer tokenizer = tokenizer_of(definition);
  EncodeScratch scratch;
  std::vector<TokenId> ids;
  const std::string text = repeated("<|end|>", 5);
  EXPECT_TRUE(tokenizer.encode(text, {.max_tokens = 6}, scratch, ids));
  EXPECT_FALSE(tokenizer.encode(text, {.max_tokens = 5}, scratch, ids));
}

TEST(TokenLimit, EndsTheWork) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_json());
  EncodeScratch scratch;
  std::vector<TokenId> ids;
  // The longest token has 7 bytes: bytes alone refuse this text.
  EXPECT_FALSE(tokenizer.encode(repeated("a", 1 << 20), {.max_tokens = 1000}, scratch, ids));
  EXPECT_TRUE(ids.empty());
  // Here the bound says nothing: the tokens tell, long before the end.
  EXPECT_FALSE(tokenizer.encode(repeated("a ", 3000), {.max_tokens = 1000}, scratch, ids));
  EXPECT_LE(ids.size(), 1002u);
}

TEST(TokenBound, IsBytesByTheLongestToken) {
  // Tokens of bytes: "<|end|>" and "<|bos|>" have 7.
  EXPECT_EQ(tokenizer_of(byte_level_json()).min_tokens(700), 100u);
  EXPECT_EQ(tokenizer_of(byte_level_json()).min_tokens(701), 101u);
  EXPECT_EQ(tokenizer_of(byte_level_json()).min_tokens(0), 0u);
}

TEST(TokenBound, IsAbsentWhereTextCanVanish) {
  json definition = byte_level_json();
  definition["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_EQ(tokenizer_of(definition).min_tokens(1 << 20), 0u);
  definition = byte_level_json();
  definition["added_tokens"][0]["rstrip"] = true;
  EXPECT_EQ(tokenizer_of(definition).min_tokens(1 << 20), 0u);
  definition = byte_level_json();
  definition["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  EXPECT_EQ(tokenizer_of(definition).min_tokens(1 << 20), 0u);
  definition = sentencepiece_json();
  definition["model"]["byte_fallback"] = false;
  definition["model"]["fuse_unk"] = true;
  EXPECT_EQ(tokenizer_of(definition).min_tokens(1 << 20), 0u);
}

TEST(TokenBound, HoldsForTextThatShrinks) {
  json nfkc = byte_level_json();
  nfkc["normalizer"] = {{"type", "NFKC"}};
  json replace = byte_level_json();
  replace["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "abcdefghij"}}}, {"content", "xyz"}};
  json lowercase = byte_level_json();
  lowercase["normalizer"] = {{"type", "Lowercase"}};
  TestRandom rng(11);
  const std::vector<std::string> parts = {"abcdefghij", "\U0001D7CE",         "\u212A",  "hello",
                                          " world",     "\u1FBE\u0308\u0301", "<|end|>", "e\u0301"};
  for (const json& definition :
       {byte_level_json(), sentencepiece_json(), nfkc, replace, lowercase}) {
    const Tokenizer tokenizer = tokenizer_of(definition);
    ASSERT_GT(tokenizer.min_tokens(1000), 0u);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      // Runs of one part are the extreme cases.
      const std::string& part = parts[rng() % parts.size()];
      for (std::size_t i = rng() % 30; i > 0; --i) text += part;
      const auto ids = tokenizer.encode(text, {.add_special_tokens = AddSpecialTokens::kNo});
      ASSERT_TRUE(ids);
      EXPECT_LE(tokenizer.min_tokens(text.size()), ids->size()) << text;
    }
  }
}

// A check that lets the work go on `rounds` times.
StopCheck stop_after(int rounds, int& asked) {
  return [rounds, &asked]() -> Status {
    if (asked++ < rounds) return {};
    return Error{ErrorCode::kCancelled, "the client has left"};
  };
}

// Each definition spends its time in another stage.
std::vector<json> slow_definitions() {
  json merges = byte_level_json();  // one piece of 'h' and 'e', which merge
  json regex = byte_level_json();
  regex["pre_tokenizer"] = {{"type", "Split"},
                            {"pattern", {{"Regex", "[a-z]"}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
  json literal = byte_level_json();
  literal["pre_tokenizer"] = {{"type", "Split"},
                              {"pattern", {{"String", "h"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}};
  json replace = byte_level_json();
  replace["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "h"}}}, {"content", "j"}};
  json marks = byte_level_json();
  marks["normalizer"] = {{"type", "NFC"}};
  return {merges, regex, literal, replace, marks, sentencepiece_json()};
}

TEST(StopCheck, EndsEveryStage) {
  const std::string text = repeated("he\u0301", 100'000);
  for (const json& definition : slow_definitions()) {
    SCOPED_TRACE(dump_json(definition).substr(0, 400));
    const Tokenizer tokenizer = tokenizer_of(definition);
    EncodeScratch scratch;
    std::vector<TokenId> ids;
    int asked = 0;
    const StopCheck never = stop_after(1 << 30, asked);
    ASSERT_TRUE(tokenizer.encode(text, {.stop = &never}, scratch, ids));
    const auto expected = ids;
    const int in_all = asked;
    EXPECT_GT(in_all, 2);
    for (int rounds = 0; rounds < in_all; rounds += 1 + in_all / 3) {
      asked = 0;
      const StopCheck stop = stop_after(rounds, asked);
      const Status stopped = tokenizer.encode(text, {.stop = &stop}, scratch, ids);
      ASSERT_FALSE(stopped);
      EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
      EXPECT_EQ(stopped.error().message, "the client has left");
      EXPECT_EQ(asked, rounds + 1);
    }
    // The scratch serves the next text as before, and no longer holds the check.
    ASSERT_TRUE(tokenizer.encode(text, {}, scratch, ids));
    EXPECT_EQ(ids, expected);
  }
}

TEST(StopCheck, ShortTextsAreNotAsked) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_json());
  EncodeScratch scratch;
  std::vector<TokenId> ids;
  int asked = 0;
  const StopCheck stop = stop_after(0, asked);
  EXPECT_TRUE(tokenizer.encode("hello world", {.stop = &stop}, scratch, ids));
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace sluice
