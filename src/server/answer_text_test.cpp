#include "server/answer_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/demo_model.h"

namespace sluice {
namespace {

// The parts of an answer of gpt-oss, token by token or at once.
AnswerParts parts_of(std::string_view text, bool at_once) {
  const ServedModel model = test::load_demo_model(256);
  const ToolParameters none;
  AnswerText answer(
      *TextStream::create(&model.tokenizer, SamplingParams{}, {}, SkipSpecialTokens::kNo));
  answer.read_reasoning(*find_reasoning_format("openai_gptoss"), /*inside=*/false);
  answer.read_calls(*find_tool_format("openai"), none);
  const std::vector<TokenId> ids = *model.tokenizer.encode(text, {AddSpecialTokens::kNo});
  AnswerParts parts;
  std::vector<std::int64_t> offsets;
  const std::span<const TokenId> all(ids);
  for (std::size_t at = 0; at < all.size(); at += at_once ? all.size() : 1) {
    answer.push(all.subspan(at, at_once ? all.size() : 1), FinishReason::kNone, parts, offsets);
  }
  answer.finish(/*stopped=*/false, FinishReason::kStop, parts);
  return parts;
}

TEST(AnswerText, ChannelsAreReasoningContentAndCalls) {
  for (const bool at_once : {false, true}) {
    const AnswerParts text = parts_of(
        "<|channel|>analysis<|message|>The user asks.<|end|><|start|>assistant"
        "<|channel|>final<|message|>It is late.",
        at_once);
    EXPECT_EQ(text.reasoning, "The user asks.");
    EXPECT_EQ(text.content, "It is late.");
    EXPECT_TRUE(text.calls.empty());

    const AnswerParts call = parts_of(
        "<|channel|>analysis<|message|>A tool.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.now <|constrain|>json<|message|>{\"zone\": \"UTC\"}",
        at_once);
    EXPECT_EQ(call.reasoning, "A tool.");
    EXPECT_EQ(call.content, "");
    ASSERT_EQ(call.calls.size(), 1U);
    EXPECT_EQ(call.calls.front().name, "now");
    EXPECT_EQ(call.calls.front().arguments, R"({"zone":"UTC"})");
  }
}

}  // namespace
}  // namespace sluice
