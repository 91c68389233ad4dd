#include "front/cut_tool_call.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "front/tool_call_stream.h"

namespace sluice {
namespace {

const ToolParameters& cut_tools() {
  static const ToolParameters parameters = ToolParameters::from_json(
      R"([{"function":{"name":"f","parameters":{"properties":{"a":{"type":"integer"},
          "b":{"type":"string"}}}}},{"function":{"name":"g"}}])");
  return parameters;
}

struct CutAnswer {
  std::string content;
  std::vector<ToolCall> calls;
};

CutAnswer read_cut(const ToolFormat& format, std::string_view answer, TextEnd end = TextEnd::kCut) {
  ToolCallStream stream(format, cut_tools());
  CutAnswer out;
  stream.push(answer, out.content, out.calls);
  stream.finish(end, out.content, out.calls);
  return out;
}

struct CutCase {
  std::string_view format;
  std::string_view answer;
  std::string_view name;
  std::string_view arguments;
};

constexpr CutCase kCutCases[] = {
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x", "f",
     R"({"a": 1, "b": "x)"},
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}", "f", R"({"a": 1})"},
    {"hermes", R"(<tool_call>{"name": "f", "arg)", "f", ""},
    {"hermes", R"(<tool_call>{"arguments": {"a": [{"name": "g"}]}, "name": "f")", "f",
     R"({"a": [{"name": "g"}]})"},
    {"hermes", R"(<tool_call>{"name": "f", "arguments": {"b": "\"}{[)", "f", R"({"b": "\"}{[)"},
    {"llama3_json", R"({"name": "f", "parameters": {"a")", "f", R"({"a")"},
    {"mistral", R"([TOOL_CALLS][{"name": "f", "arguments": {"a":)", "f", R"({"a":)"},
    {"mistral", R"([TOOL_CALLS]f[ARGS]{"a":)", "f", R"({"a":)"},
    {"mistral", "[TOOL_CALLS]f[ARGS]", "f", ""},
    {"apertus", R"(<|tools_prefix|>[{"f": {"a":)", "f", R"({"a":)"},
    {"kimi_k2", R"(<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1)", "f",
     R"({"a": 1)"},
    {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n`", "f",
     R"({"a": 1})"},
    {"openai", R"( to=functions.f <|constrain|>json<|message|>{"b": "x)", "f", R"({"b": "x)"},
    {"openai", " to=functions.f <|constrain|>", "f", ""},
    {"functionary_v32", "f\n{\"a\": 1", "f", R"({"a": 1)"},
    {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nxy",
     "f", R"({"a":1)"},
    {"qwen3_coder", "<tool_call>\n<function=f>\n<para", "f", "{"},
    {"glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b", "f",
     R"({"a":1)"},
    {"glm45", "<tool_call>f\n<arg_k", "f", "{"},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"b\" "
     "string=\"true\">1</｜DSML｜parameter>\n<｜DSML｜par",
     "f", R"({"b":"1")"},
    {"gemma4", "<|tool_call>call:f{a:1,b:<|\"|>x,}", "f", R"({"a":1)"},
    {"pythonic", "[f(a=1, b=\"x(", "f", R"({"a":1)"},
    {"pythonic", "[f(a=[1, 2", "f", "{"},
};

TEST(CutToolCall, IsACallWithTheBeginningOfItsArguments) {
  for (const CutCase& c : kCutCases) {
    const CutAnswer got = read_cut(*find_tool_format(c.format), c.answer);
    EXPECT_EQ(got.content, "") << c.format << ": " << c.answer;
    ASSERT_EQ(got.calls.size(), 1U) << c.format << ": " << c.answer;
    EXPECT_EQ(got.calls[0].name, c.name) << c.format << ": " << c.answer;
    EXPECT_EQ(got.calls[0].arguments, c.arguments) << c.format << ": " << c.answer;
    EXPECT_TRUE(got.calls[0].cut) << c.format << ": " << c.answer;
  }
}

TEST(CutToolCall, CallsBeforeItAreComplete) {
  constexpr CutCase kSecond[] = {
      {"hermes", R"(<tool_call>{"name":"g"}</tool_call><tool_call>{"name":"f","arguments":{"a":)",
       "f", R"({"a":)"},
      {"granite", R"(<|tool_call|>[{"name":"g"}, {"name":"f","arguments":{"a":)", "f", R"({"a":)"},
      {"mistral", R"([TOOL_CALLS]g[ARGS]{}[TOOL_CALLS]f[ARGS]{"a":)", "f", R"({"a":)"},
      {"pythonic", "[g(), f(a=1, ", "f", R"({"a":1)"},
      {"deepseek_v32",
       "<｜DSML｜function_calls><｜DSML｜invoke name=\"g\"></｜DSML｜invoke>"
       "<｜DSML｜invoke name=\"f\">",
       "f", "{"},
  };
  for (const CutCase& c : kSecond) {
    const CutAnswer got = read_cut(*find_tool_format(c.format), c.answer);
    ASSERT_EQ(got.calls.size(), 2U) << c.format << ": " << got.content;
    EXPECT_EQ(got.calls[0], (ToolCall{"g", "{}"})) << c.format;
    EXPECT_EQ(got.calls[1].name, c.name) << c.format;
    EXPECT_EQ(got.calls[1].arguments, c.arguments) << c.format;
    EXPECT_TRUE(got.calls[1].cut) << c.format;
  }
}

TEST(CutToolCall, OtherTextStaysContent) {
  for (const std::string_view answer :
       {R"(<tool_call>{"name": "f)", R"(<tool_call>{"name": "unknown", "arguments": {"a")",
        "<tool_call>nonsense", R"(<tool_call>{"colour": "f", "arguments": {)",
        R"(<tool_call>[1, {"name": "f", "arguments": {)"}) {
    const CutAnswer got = read_cut(*find_tool_format("hermes"), answer);
    EXPECT_EQ(got.content, answer);
    EXPECT_TRUE(got.calls.empty()) << answer;
  }
  constexpr std::string_view kAnswer = R"(<tool_call>{"name": "f", "arguments": {"a": 1)";
  const CutAnswer ended = read_cut(*find_tool_format("hermes"), kAnswer, TextEnd::kComplete);
  EXPECT_EQ(ended.content, kAnswer) << "the model ended it";
}

// Wherever a call is cut, it is text or a call of that tool, and a call once its arguments begin.
TEST(CutToolCall, EveryPrefixIsTextOrTheCall) {
  const std::string_view answers[][2] = {
      {"hermes", R"(<tool_call>{"name": "f", "arguments": {"b": "x", "a": 12}}</tool_call>)"},
      {"llama3_json", R"({"name": "f", "parameters": {"b": "x", "a": 12}})"},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=b>\nx\n</parameter>\n<parameter=a>\n12\n"
       "</parameter>\n</function>\n</tool_call>"},
      {"glm45",
       "<tool_call>f\n<arg_key>b</arg_key><arg_value>x</arg_value><arg_key>a</arg_key>"
       "<arg_value>12</arg_value></tool_call>"},
      {"gemma4", "<|tool_call>call:f{b:<|\"|>x<|\"|>,a:12}<tool_call|>"},
      {"pythonic", R"([f(b="x", a=12)])"},
      {"functiongemma", "<start_function_call>call:f{b:<escape>x<escape>,a:12}<end_function_call>"},
  };
  for (const auto& [format, answer] : answers) {
    bool begun = false;
    for (std::size_t size = 0; size <= answer.size(); ++size) {
      const std::string_view prefix = answer.substr(0, size);
      const CutAnswer got = read_cut(*find_tool_format(format), prefix);
      EXPECT_TRUE(got.calls.size() == 1 || !begun) << format << ": " << prefix;
      if (got.calls.empty()) continue;
      begun = true;
      EXPECT_EQ(got.calls[0].name, "f") << prefix;
      EXPECT_EQ(got.content, "") << prefix;
      if (got.calls[0].cut) continue;
      EXPECT_EQ(got.calls[0].arguments, R"({"b":"x","a":12})") << prefix;
    }
    EXPECT_TRUE(begun) << format;
  }
}

}  // namespace
}  // namespace sluice
