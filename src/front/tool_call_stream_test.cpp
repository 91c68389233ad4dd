#include "front/tool_call_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Split {
  std::string content;
  std::vector<ToolCall> calls;
};

// The answer in pieces of random length.
Split split(std::string_view format, std::string_view answer, std::uint64_t seed) {
  static const ToolParameters kNone;
  ToolCallStream stream(*find_tool_format(format), kNone);
  SplitMix64 random(seed);
  Split out;
  while (!answer.empty()) {
    const std::size_t length = seed == 0 ? answer.size() : 1 + random.below(7);
    stream.push(answer.substr(0, length), out.content, out.calls);
    answer.remove_prefix(std::min(length, answer.size()));
  }
  stream.finish(TextEnd::kComplete, out.content, out.calls);
  EXPECT_EQ(stream.any_call(), !out.calls.empty());
  return out;
}

struct Case {
  std::string_view format;
  std::string_view answer;
  std::string_view content;
  std::vector<ToolCall> calls;
};

const ToolCall kCall{"f", R"({"a":1})"};

std::vector<Case> cases() {
  constexpr std::string_view kText = " No call here: { } <tool_cal [TOOL_CALL ";
  return {
      {"hermes", kText, kText, {}},
      {"hermes", "", "", {}},
      {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>", "", {kCall}},
      {"hermes",
       "Let me see.\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>\n"
       "<tool_call>{\"name\":\"g\"}</tool_call>\n",
       "Let me see.",
       {kCall, {"g", "{}"}}},
      {"hermes",
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\"}}</tool_call> done ",
       " done",
       {{"f", R"({"a":"</tool_call>"})"}}},
      {"hermes", "a <tool_call>nonsense</tool_call> b", "a <tool_call>nonsense</tool_call> b", {}},
      {"hermes", "a <tool_call>{\"name\":", "a <tool_call>{\"name\":", {}},
      // The end marker is cut, or the model wrote none.
      {"hermes", "a <tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool", "a", {kCall}},
      {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}", "", {kCall}},
      {"gemma4", "<|tool_call>call:f{a:1}<tool", "", {kCall}},
      {"glm45",
       "<tool_call>f\n<arg_key>a</arg_key><arg_value>1</arg_value></tool",
       "<tool_call>f\n<arg_key>a</arg_key><arg_value>1</arg_value></tool",
       {}},
      {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\":1}[TOOL_CALLS]g[ARGS]{}", "", {kCall, {"g", "{}"}}},
      {"mistral", "Well [TOOL_CALLS] [{\"name\":\"f\",\"arguments\":{\"a\":1}}]", "Well", {kCall}},
      {"kimi_k2",
       "x<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"a\":1}<|tool_call_end|><|tool_calls_section_end|>",
       "x",
       {kCall}},
      {"llama3_json", " {\"name\":\"f\",\"parameters\":{\"a\":1}}\n", "", {kCall}},
      {"llama3_json", "<|python_tag|>{\"name\":\"f\",\"parameters\":{\"a\":1}}", "", {kCall}},
      {"llama3_json", " {\"colour\":\"red\"}\n", " {\"colour\":\"red\"}\n", {}},
      {"llama3_json", kText, kText, {}},
      {"openai", "<|channel|>final<|message|>Hello.<|return|>", "Hello.", {}},
      {"openai",
       "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary"
       " to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
       "Let me see.",
       {kCall}},
      {"openai", " to=functions.f<|channel|>commentary json<|message|>{\"a\":1}", "", {kCall}},
      {"gemma4",
       "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>",
       "",
       {kCall, {"g", "{}"}}},
      {"functiongemma",
       "x <start_function_call>call:f{a:<escape>b<escape>}<end_function_call>",
       "x",
       {{"f", R"({"a":"b"})"}}},
      {"pythonic", " [f(a=1), g()]\n", "", {kCall, {"g", "{}"}}},
      {"pythonic", "<|python_start|>[f(a=1)]<|python_end|>", "", {kCall}},
      {"pythonic", "[1, 2]", "[1, 2]", {}},
      {"functionary_v32", "f\n{\"a\":1}>>>g\n{}", "", {kCall, {"g", "{}"}}},
      {"functionary_v32", "all\nHello.>>>f\n{\"a\":1}", "Hello.", {kCall}},
      {"functionary_v32", "all\n1 >>> 2", "1 >>> 2", {}},
      {"functionary_v32", "Hello there\n{}", "Hello there\n{}", {}},
      {"functionary_v32", "al", "al", {}},
      {"gigachat3_role",
       "Hm.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}",
       "Hm.",
       {kCall}},
      {"lfm2", "<|tool_call_start|>[f(a=1)]<|tool_call_end|>Done.", "Done.", {kCall}},
      {"llama3_json",
       "say {\"name\":\"f\",\"parameters\":{}}",
       "say {\"name\":\"f\",\"parameters\":{}}",
       {}},
  };
}

TEST(ToolCallStream, SplitsAnswersHoweverTheyCome) {
  for (const Case& c : cases()) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const Split got = split(c.format, c.answer, seed);
      EXPECT_EQ(got.content, c.content) << c.format << ": " << c.answer << ", seed " << seed;
      EXPECT_EQ(got.calls, c.calls) << c.format << ": " << c.answer << ", seed " << seed;
    }
  }
}

TEST(ToolCallStream, TextIsHeldBackOnlyWhileItMayBeACall) {
  const ToolParameters none;
  ToolCallStream stream(*find_tool_format("hermes"), none);
  std::string content;
  std::vector<ToolCall> calls;
  stream.push("Hello <too", content, calls);
  EXPECT_EQ(content, "Hello");
  stream.push("th", content, calls);
  EXPECT_EQ(content, "Hello <tooth");
  stream.push("<tool_call>{\"name\":\"f\"}</tool_call", content, calls);
  EXPECT_THAT(calls, IsEmpty());
  stream.push(">", content, calls);
  EXPECT_THAT(calls, ElementsAre(ToolCall{"f", "{}"})) << "not only at the end of the answer";
}

// Each of these would take minutes if every marker cost time in proportion to the answer.
TEST(ToolCallStream, AnswersFullOfMarkersAreTextInLinearTime) {
  std::string begins;
  std::string ends = "<tool_call>";
  std::string pairs;
  for (int i = 0; i < 100'000; ++i) {
    begins += "<tool_call>";
    ends += "</tool_call> ";
    pairs += "<tool_call>{</tool_call>";
  }
  for (const std::string& answer : {begins, ends, pairs}) {
    for (const std::uint64_t seed : {0U, 1U}) {
      const Split out = split("hermes", answer, seed);
      EXPECT_TRUE(out.content == answer) << answer.substr(0, 30);
      EXPECT_TRUE(out.calls.empty());
    }
  }
}

}  // namespace
}  // namespace sluice
