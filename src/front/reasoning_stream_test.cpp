#include "front/reasoning_stream.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace sluice {
namespace {

struct Parts {
  std::string reasoning;
  std::string content;
};

Parts parts_of(std::string_view format, std::string_view answer, bool inside, std::uint64_t seed) {
  ReasoningStream stream(*find_reasoning_format(format), inside);
  SplitMix64 random(seed);
  Parts parts;
  while (!answer.empty()) {
    const std::size_t length = seed == 0 ? answer.size() : 1 + random.below(6);
    stream.push(answer.substr(0, length), parts.reasoning, parts.content);
    answer.remove_prefix(std::min(length, answer.size()));
  }
  stream.finish(parts.reasoning, parts.content);
  return parts;
}

TEST(ReasoningStream, SplitsAnswersHoweverTheyCome) {
  struct Case {
    std::string_view format, answer;
    bool inside;
    std::string_view reasoning, content;
  };
  const Case cases[] = {
      {"qwen3", "<think>\nA <b> </thin\n</think>\n\nYes", false, "\nA <b> </thin\n", "\n\nYes"},
      {"qwen3", "\n <think>a</think>b<think>c</think>", false, "a", "b<think>c</think>"},
      {"qwen3", "Yes <think>no</think>", false, "", "Yes <think>no</think>"},
      {"qwen3", "  plain", false, "", "  plain"},
      {"qwen3", " <thi", false, "", " <thi"},
      {"qwen3", "<think>cut </thi", false, "cut </thi", ""},
      {"qwen3", "", false, "", ""},
      {"deepseek_r1", "I see.</think>Yes", true, "I see.", "Yes"},
      {"deepseek_r1", "never ends", true, "never ends", ""},
      {"mistral", "[THINK]x[/THINK]y", false, "x", "y"},
      {"gemma4", "<|channel>thought\nx\n<channel|>y", false, "x\n", "y"},
      {"openai_gptoss",
       "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>y",
       false, "x", "<|channel|>final<|message|>y"},
      {"granite", "Here is my thought process: x\nHere is my response: y", false, " x\n", " y"},
  };
  for (const Case& c : cases) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const Parts parts = parts_of(c.format, c.answer, c.inside, seed);
      EXPECT_EQ(parts.reasoning, c.reasoning) << c.answer << ", seed " << seed;
      EXPECT_EQ(parts.content, c.content) << c.answer << ", seed " << seed;
    }
  }
}

TEST(ReasoningStream, ReasoningComesBeforeItsEnd) {
  ReasoningStream stream(*find_reasoning_format("qwen3"), false);
  Parts parts;
  stream.push("<think>a <", parts.reasoning, parts.content);
  EXPECT_EQ(parts.reasoning, "a ");
}

TEST(ReasoningStream, APromptMayEndInside) {
  const ReasoningFormat& format = *find_reasoning_format("deepseek_r1");
  EXPECT_TRUE(begins_inside(format, "x<think>\n"));
  EXPECT_FALSE(begins_inside(format, "x<think>\n\n</think>\n\n"));
  EXPECT_FALSE(begins_inside(format, ""));
  EXPECT_EQ(find_reasoning_format("no-such"), nullptr);
}

}  // namespace
}  // namespace sluice
