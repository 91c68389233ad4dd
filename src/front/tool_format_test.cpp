#include "front/tool_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::ElementsAre;

const ToolFormat& format_named(std::string_view name) {
  const ToolFormat* format = find_tool_format(name);
  EXPECT_NE(format, nullptr) << name;
  return *format;
}

std::vector<ToolCall> calls_in(std::string_view format, std::string_view body,
                               const ToolParameters& parameters = {}) {
  return parse_tool_body(format_named(format), body, parameters).value_or(std::vector<ToolCall>{});
}

TEST(ToolFormat, NamesAreUnique) {
  for (const ToolFormat& format : tool_formats()) {
    EXPECT_EQ(find_tool_format(format.name), &format) << format.name;
  }
  EXPECT_EQ(find_tool_format("no-such-parser"), nullptr);
}

TEST(ToolFormat, JsonCallsHaveOneOfSeveralNames) {
  EXPECT_THAT(calls_in("hermes", R"( {"name": "f", "arguments": {"a": 1, "b": "x"}} )"),
              ElementsAre(ToolCall{"f", R"({"a":1,"b":"x"})"}));
  EXPECT_THAT(calls_in("llama3_json", R"({"name":"f","parameters":{"z":[1,null],"a":{}}})"),
              ElementsAre(ToolCall{"f", R"({"z":[1,null],"a":{}})"}));
  EXPECT_THAT(calls_in("cohere", R"([{"tool_name":"f","parameters":{}},{"tool_name":"g"}])"),
              ElementsAre(ToolCall{"f", "{}"}, ToolCall{"g", "{}"}));
  EXPECT_THAT(calls_in("hermes", R"({"name":"f","arguments":"{\"a\": 1}"})"),
              ElementsAre(ToolCall{"f", R"({"a":1})"}));
  EXPECT_THAT(calls_in("apertus", R"([{"f":{"a":1}},{"g":{}}])"),
              ElementsAre(ToolCall{"f", R"({"a":1})"}, ToolCall{"g", "{}"}));
}

TEST(ToolFormat, NamesMayStandBeforeTheArguments) {
  EXPECT_THAT(calls_in("mistral", R"(f[ARGS]{"a": 1})"), ElementsAre(ToolCall{"f", R"({"a":1})"}));
  EXPECT_THAT(calls_in("mistral", R"(f[CALL_ID]abc[ARGS]{"a": 1})"),
              ElementsAre(ToolCall{"f", R"({"a":1})"}));
  EXPECT_THAT(calls_in("mistral", R"( [{"name":"f","arguments":{"a":"[ARGS]"},"id":"abc"}])"),
              ElementsAre(ToolCall{"f", R"({"a":"[ARGS]"})"}));
  EXPECT_THAT(calls_in("kimi_k2", R"(functions.f:12<|tool_call_argument_begin|>{"a": 1})"),
              ElementsAre(ToolCall{"f", R"({"a":1})"}));
  EXPECT_THAT(calls_in("deepseek_v3", "f\n```json\n{\"a\": 1}\n```"),
              ElementsAre(ToolCall{"f", R"({"a":1})"}));
  EXPECT_THAT(calls_in("functionary_v3", R"(f>{"a": ">"})"),
              ElementsAre(ToolCall{"f", R"({"a":">"})"}));
}

TEST(ToolFormat, ValuesWithoutQuotesHaveTheTypesOfTheTool) {
  const auto parameters = ToolParameters::from_json(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
          {"zip":{"type":"string"},"days":{"type":"integer"},"any":{}}}}},{"function":5},7])");
  const std::string body =
      "\n<function=f>\n<parameter=zip>\n12345\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
      "<parameter=any>\n[1, \"x\"]\n</parameter>\n<parameter=text>\na\nb <x>\n</parameter>\n"
      "</function>\n";
  EXPECT_THAT(
      calls_in("qwen3_coder", body, parameters),
      ElementsAre(ToolCall{"f", R"({"zip":"12345","days":3,"any":[1,"x"],"text":"a\nb <x>"})"}));
  EXPECT_THAT(calls_in("glm45",
                       "f\n<arg_key>zip</arg_key>\n<arg_value>1</arg_value>\n"
                       "<arg_key>days</arg_key><arg_value>2</arg_value>",
                       parameters),
              ElementsAre(ToolCall{"f", R"({"zip":"1","days":2})"}));
  EXPECT_THAT(
      calls_in("deepseek_v32",
               "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">1"
               "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">1"
               "</｜DSML｜parameter>\n</｜DSML｜invoke>\n"),
      ElementsAre(ToolCall{"f", R"({"a":"1","b":1})"}));
}

TEST(ToolFormat, HarmonyNamesTheRecipientInTheHeader) {
  for (const std::string_view body :
       {R"(f<|channel|>commentary json<|message|>{"a": 1}<|call|>)",
        R"(f <|constrain|>json<|message|>{"a": 1})", R"(f<|message|> {"a":1}<|call|><|start|>)"}) {
    EXPECT_THAT(calls_in("openai", body), ElementsAre(ToolCall{"f", R"({"a":1})"})) << body;
  }
  EXPECT_THAT(calls_in("openai", "<|message|>{}"), ElementsAre());
  EXPECT_THAT(calls_in("openai", "f<|message|>no"), ElementsAre());
}

TEST(ToolFormat, OtherTextIsNoCall) {
  for (const ToolFormat& format : tool_formats()) {
    for (const std::string_view body : {"",
                                        " ",
                                        "{",
                                        "[]",
                                        "[1]",
                                        "{}",
                                        "null",
                                        "f",
                                        "f<",
                                        "<function=f>",
                                        "<function=f",
                                        R"({"name":5,"arguments":{}})",
                                        R"({"name":"","arguments":{}})",
                                        R"({"name":"f","arguments":[]})",
                                        R"({"name":"f","arguments":{}} x)",
                                        "f>{",
                                        "f>[]",
                                        "f[ARGS]",
                                        "[ARGS]{}",
                                        "<function=f><parameter=a>1</function>"}) {
      // Names, and so calls without arguments.
      if (format.body == ToolBody::kArgPairs && (body == "f" || body == "null")) continue;
      EXPECT_FALSE(parse_tool_body(format, body, {})) << format.name << ": " << body;
    }
  }
  EXPECT_FALSE(parse_tool_body(format_named("hermes"), std::string(100000, '['), {}));
}

}  // namespace
}  // namespace sluice
