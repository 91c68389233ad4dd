#include "front/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using ::testing::ElementsAre;

const Tokenizer& demo() {
  static const Tokenizer tokenizer = *Tokenizer::load("models/demo");
  return tokenizer;
}

std::vector<TokenId> tokens_of(std::string_view text) {
  EncodeOptions options;
  options.add_special_tokens = AddSpecialTokens::kNo;
  return *demo().encode(text, options);
}

TextStream stream_of(const SamplingParams& sampling, std::span<const TokenId> prompt = {},
                     SkipSpecialTokens skip = SkipSpecialTokens::kYes) {
  return *TextStream::create(&demo(), sampling, prompt, skip);
}

TEST(TextStream, TokenByTokenEqualsAllAtOnce) {
  const std::string text = "Grüße aus Köln, 日本 und 🎈: 12 Äpfel.";
  const std::vector<TokenId> tokens = tokens_of(text);
  TextStream single = stream_of({});
  TextStream whole = stream_of({});
  std::string from_single;
  std::string from_whole;
  for (const TokenId token : tokens) {
    const auto taken = single.push(std::span(&token, 1), from_single);
    EXPECT_EQ(taken.tokens, 1U);
    EXPECT_FALSE(taken.stopped);
  }
  EXPECT_EQ(whole.push(tokens, from_whole).tokens, tokens.size());
  single.finish(from_single);
  whole.finish(from_whole);
  EXPECT_EQ(from_single, text);
  EXPECT_EQ(from_whole, text);
  EXPECT_EQ(single.stopped_by(), std::nullopt);
}

TEST(TextStream, StopStringEndsItAndIsNamed) {
  SamplingParams sampling;
  sampling.stop = {"never", "cat"};
  const std::vector<TokenId> tokens = tokens_of("the dog and the cat and the cow");
  TextStream stream = stream_of(sampling);
  std::string text;
  const auto taken = stream.push(tokens, text);
  EXPECT_TRUE(taken.stopped);
  EXPECT_EQ(text, "the dog and the ");
  EXPECT_EQ(stream.stopped_by(), std::optional<std::size_t>(1));
  // Tokens after the stop string do not count.
  EXPECT_LT(taken.tokens, tokens.size());
  EXPECT_EQ(
      demo().decode(std::span(tokens).first(taken.tokens), SkipSpecialTokens::kYes).find("cat"),
      text.size());
  EXPECT_EQ(stream.push(tokens, text).tokens, 0U);
  stream.finish(text);
  EXPECT_EQ(text, "the dog and the ");

  sampling.include_stop_str_in_output = true;
  TextStream including = stream_of(sampling);
  text.clear();
  including.push(tokens, text);
  EXPECT_EQ(text, "the dog and the cat");
}

// min_tokens promises this number of tokens, whatever their text.
TEST(TextStream, TheFirstTokensCompleteNoStopString) {
  SamplingParams sampling;
  sampling.stop = {"cat"};
  const std::vector<TokenId> first = tokens_of("the cat and");
  const std::vector<TokenId> rest = tokens_of(" the cat and the cow");
  sampling.min_tokens = static_cast<std::int32_t>(first.size());
  TextStream stream = stream_of(sampling);
  std::string text;
  EXPECT_EQ(stream.push(first, text).tokens, first.size());
  EXPECT_EQ(text, "the cat and");
  EXPECT_TRUE(stream.push(rest, text).stopped);
  EXPECT_EQ(text, "the cat and the ");
  // The token that completes it counts.
  sampling.min_tokens = static_cast<std::int32_t>(tokens_of("the").size());
  text.clear();
  EXPECT_TRUE(stream_of(sampling).push(first, text).stopped);
  EXPECT_EQ(text, "the ");
}

TEST(TextStream, TheIdThatEndsTheSequenceIsNoText) {
  const std::vector<TokenId> tokens = tokens_of("the cat.");
  std::string text;
  std::vector<std::int64_t> offsets;
  TextStream stream = stream_of({});
  const auto taken = stream.push(tokens, text, offsets, FinishReason::kStop);
  stream.finish(text);
  EXPECT_EQ(text, "the cat");
  EXPECT_EQ(taken.tokens, tokens.size());  // a token it is nevertheless
  EXPECT_FALSE(taken.stopped);
  EXPECT_EQ(offsets.size(), tokens.size());
  SamplingParams sampling;
  sampling.include_stop_str_in_output = true;
  text.clear();
  stream_of(sampling).push(tokens, text, FinishReason::kStop);
  EXPECT_EQ(text, "the cat.");
}

TEST(TextStream, HeldBackTextComesAtTheEnd) {
  SamplingParams sampling;
  sampling.stop = {"dogma"};
  TextStream stream = stream_of(sampling);
  std::string text;
  stream.push(tokens_of("the dog"), text);
  EXPECT_EQ(text, "the ");
  stream.finish(text);
  EXPECT_EQ(text, "the dog");
}

TEST(TextStream, OffsetsCountCodePoints) {
  const std::vector<TokenId> tokens = tokens_of("é日🎈 cat");
  TextStream stream = stream_of({});
  std::string text;
  std::vector<std::int64_t> offsets;
  stream.push(std::span(tokens).first(2), text, offsets);
  stream.push(std::span(tokens).subspan(2), text, offsets);
  ASSERT_EQ(offsets.size(), tokens.size());
  // Each token starts after the whole characters of the tokens before it.
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string before;
    TextStream prefix = stream_of({});
    prefix.push(std::span(tokens).first(i), before);
    std::int64_t characters = 0;
    for (const char byte : before) characters += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    EXPECT_EQ(offsets[i], characters) << i;
  }
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_GE(offsets.back(), 3);
}

TEST(TextStream, OffsetsEndWithTheStopString) {
  SamplingParams sampling;
  sampling.stop = {"cat"};
  TextStream stream = stream_of(sampling);
  std::string text;
  std::vector<std::int64_t> offsets;
  const auto taken = stream.push(tokens_of("the cat and the cow"), text, offsets);
  EXPECT_EQ(offsets.size(), taken.tokens);
}

TEST(TextStream, SpecialTokensAreSkippedOrNot) {
  const std::vector<TokenId> tokens = tokens_of("the<|end|> cat");
  std::string skipped;
  stream_of({}).push(tokens, skipped);
  EXPECT_EQ(skipped, "the cat");
  std::string kept;
  stream_of({}, {}, SkipSpecialTokens::kNo).push(tokens, kept);
  EXPECT_EQ(kept, "the<|end|> cat");
}

TEST(TextStream, ContinuesThePromptAndCopies) {
  const std::vector<TokenId> tokens = tokens_of("日");
  ASSERT_GT(tokens.size(), 1U) << "the demo model is expected to spell this in bytes";
  // The prompt ends within a character, which the first token completes.
  const TextStream prompt_read = stream_of({}, std::span(tokens).first(tokens.size() - 1));
  for (int choice = 0; choice < 2; ++choice) {
    TextStream stream = prompt_read;
    std::string text;
    stream.push(std::span(tokens).last(1), text);
    EXPECT_EQ(text, "日");
  }
}

TEST(TextStream, WithoutTokenizerThereIsNoText) {
  SamplingParams sampling;
  auto stream = TextStream::create(nullptr, sampling, {});
  ASSERT_TRUE(stream);
  std::string text;
  const std::vector<TokenId> tokens{1, 2, 3};
  EXPECT_EQ(stream->push(tokens, text).tokens, 3U);
  stream->finish(text);
  EXPECT_EQ(text, "");
  sampling.stop = {"x"};
  EXPECT_FALSE(TextStream::create(nullptr, sampling, {}));
}

// The decoder of Llama 2 and Mistral: words begin with U+2581, and decoding drops the space before
// the very first word.
Tokenizer sentencepiece() {
  return *Tokenizer::from_json(R"({"model":{"type":"BPE","merges":[],
      "vocab":{"<unk>":0,"<s>":1,"</s>":2,"\u2581Hello":3,"\u2581you":4,"!":5,"[/INST]":6}},
      "added_tokens":[{"id":1,"content":"<s>","special":true}],
      "decoder":{"type":"Sequence","decoders":[
        {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
        {"type":"ByteFallback"},{"type":"Fuse"},
        {"type":"Strip","content":" ","start":1,"stop":0}]}})");
}

TEST(TextStream, TextThatStandsAloneDropsTheFirstSpace) {
  const Tokenizer tokenizer = sentencepiece();
  const std::vector<TokenId> prompt{1, 3, 6};
  const std::vector<TokenId> answer{3, 4, 5};
  const auto text_after = [&](std::span<const TokenId> before) {
    TextStream stream = *TextStream::create(&tokenizer, {}, before);
    std::string text;
    for (const TokenId token : answer) stream.push(std::span(&token, 1), text);
    stream.finish(text);
    return text;
  };
  EXPECT_EQ(text_after({}), "Hello you!");
  EXPECT_EQ(text_after({}), tokenizer.decode(answer, SkipSpecialTokens::kYes));
  EXPECT_EQ(text_after(prompt), " Hello you!");
}

}  // namespace
}  // namespace sluice
