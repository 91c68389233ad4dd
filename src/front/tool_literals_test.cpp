#include "front/tool_literals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

using testing::ElementsAre;

std::string python_arguments(std::string_view arguments) {
  const auto calls = read_python_calls("[f(" + std::string(arguments) + ")]");
  return calls && calls->size() == 1 ? calls->front().arguments : "none";
}

std::string gemma_arguments(std::string_view arguments, std::string_view quote = "<escape>") {
  const auto call = read_gemma_call("call:f{" + std::string(arguments) + "}", quote);
  return call ? call->arguments : "none";
}

TEST(ToolLiterals, PythonCallsAreRead) {
  EXPECT_EQ(*read_python_calls(" [f(a=1), ns.g( ), ]"),
            (std::vector<ToolCall>{{"f", R"({"a":1})"}, {"ns.g", "{}"}}));
  EXPECT_EQ(python_arguments("a='x', b=\"y\", c=-1.5, d=True, e=None, f=false"),
            R"({"a":"x","b":"y","c":-1.5,"d":true,"e":null,"f":false})");
  EXPECT_EQ(python_arguments("a=[1, 'b', (2, 3), ], c={'d': {'e': [], }}"),
            R"({"a":[1,"b",[2,3]],"c":{"d":{"e":[]}}})");
  EXPECT_EQ(python_arguments(R"(a='it\'s', b="\n\x41\u00e9\U0001F600\ud83d\ude00\q\ud83d")"),
            "{\"a\":\"it's\",\"b\":\"\\nAé😀😀\\\\q\uFFFD\"}");
  EXPECT_EQ(python_arguments("a='), g(b=\"'"), "{\"a\":\"), g(b=\\\"\"}");
}

TEST(ToolLiterals, OtherTextIsNoPythonCall) {
  for (const std::string_view text :
       {"", "[", "f()", "[f()", "[f(]", "[f(1)]", "[f(a)]", "[f(a=)]", "[f(a=b)]", "[f(a=1 2)]",
        "[f(a='x)]", "[f(a=1,,b=2)]", "[()]", "[f()] x", "[f() g()]", "[f(a=\"\\ud8\")]",
        "[f(a=\"\\U00110000\")]", "[f(a=[1)]"}) {
    const auto calls = read_python_calls(text);
    EXPECT_FALSE(calls && !calls->empty()) << text;
  }
  EXPECT_EQ(python_arguments("a=" + std::string(10'000, '[')), "none");
  EXPECT_EQ(python_arguments("a=" + std::string(60, '[') + std::string(60, ']')),
            "{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}");
}

TEST(ToolLiterals, GemmaCallsAreRead) {
  EXPECT_EQ(*read_gemma_call("call:get_weather{}", "<escape>"), (ToolCall{"get_weather", "{}"}));
  EXPECT_EQ(gemma_arguments("a:<escape>x, \"y\" {z}<escape>,b:3,c:true,d:None"),
            R"({"a":"x, \"y\" {z}","b":3,"c":true,"d":null})");
  EXPECT_EQ(gemma_arguments(R"(a:{b:[<|"|>x<|"|>,0.5,{c:<|"|><|"|>}],<|"|>d e<|"|>:1})", "<|\"|>"),
            R"({"a":{"b":["x",0.5,{"c":""}],"d e":1}})");
  // JSON inside, and a text that a model left without its mark.
  EXPECT_EQ(gemma_arguments(R"(a:["x","y\n"],b:{"c":1},d:Paris)"),
            R"({"a":["x","y\n"],"b":{"c":1},"d":"Paris"})");
}

TEST(ToolLiterals, OtherTextIsNoGemmaCall) {
  for (const std::string_view text :
       {"", "call:", "call:f", "call:f{", "call:{}", "f{}", "call:f{a}", "call:f{a:}", "call:f{a:1",
        "call:f{a:<escape>x}", "call:f{}x", "call:f{a:1 b:2,,}", "call:f{:1}"}) {
    EXPECT_FALSE(read_gemma_call(text, "<escape>")) << text;
  }
}

}  // namespace
}  // namespace sluice
