#include "server/request_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "server/fast_json.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string fault(std::string_view body) {
  const auto parsed = parse_request_json(body);
  if (parsed) return "accepted";
  EXPECT_EQ(parsed.error().status, 400);
  EXPECT_EQ(parsed.error().param, "");
  return parsed.error().message;
}

std::string again(std::string_view body) {
  auto parsed = parse_request_json(body);
  if (!parsed) return parsed.error().message;
  std::string out;
  append_json(JsonValue{*std::move(parsed)}, out);
  return out;
}

TEST(ParseRequestJson, SaysWhereABodyIsBroken) {
  EXPECT_EQ(fault(""), "the body is empty; expected a JSON object");
  EXPECT_EQ(fault(" \n\t "), "the body is empty; expected a JSON object");
  EXPECT_EQ(fault("[1]"), "the body is an array; expected a JSON object");
  EXPECT_EQ(fault("\"text\""), "the body is \"text\"; expected a JSON object");
  EXPECT_EQ(fault("null"), "the body is null; expected a JSON object");
  EXPECT_THAT(fault("{} {}"), HasSubstr("not valid JSON at byte offset 3: "));
  EXPECT_THAT(fault("{\"a\":1,}"), HasSubstr("at byte offset 7: "));
  EXPECT_THAT(fault("{\"a\":"), HasSubstr("at byte offset 5: "));
  EXPECT_THAT(fault("{\"a\":NaN}"), HasSubstr("at byte offset 5: "));
  EXPECT_THAT(fault("{\"a\":1e999}"), HasSubstr("not valid JSON at byte offset "));
  EXPECT_THAT(fault("{\"a\":\"\\ud800\"}"), HasSubstr("not valid JSON at byte offset "));
  EXPECT_THAT(fault("{'a':1}"), HasSubstr("at byte offset 1: "));
  EXPECT_THAT(fault(std::string("{\"a\":\0}", 7)), HasSubstr("at byte offset 5: "));
}

TEST(ParseRequestJson, SaysWhereABodyIsNotUtf8) {
  EXPECT_EQ(fault("{\"a\":\"\xFF\"}"), "the body is not valid UTF-8 at byte offset 6");
  EXPECT_EQ(fault("{\"\xC3\""), "the body is not valid UTF-8 at byte offset 2");
}

TEST(ParseRequestJson, AnErrorNeverQuotesHalfACharacter) {
  // The parser stops after the first byte of the letter.
  EXPECT_EQ(fault("{\"a\"\xC3\xA4:1}"),
            "the body is not valid JSON at byte offset 4: syntax error while parsing object "
            "separator - invalid literal; expected ':'");
}

TEST(ParseRequestJson, BoundsDepthAndValuesBeforeItBuildsAnything) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(fault("{\"a\":" + deep), "the body is nested deeper than 128 levels");
  const auto nested = [](int levels) {
    std::string text = "{\"a\":";
    for (int i = 1; i < levels; ++i) text += '[';
    for (int i = 1; i < levels; ++i) text += ']';
    return text + "}";
  };
  EXPECT_EQ(fault(nested(kMaxBodyDepth)), "accepted");
  EXPECT_EQ(fault(nested(kMaxBodyDepth + 1)), "the body is nested deeper than 128 levels");
  std::string wide = "{\"a\":[0";
  for (std::size_t i = 0; i < kMaxBodyValues; ++i) wide += ",0";
  EXPECT_EQ(fault(wide + "]}"), "the body holds more than 2000000 values");
}

TEST(ParseRequestJson, ManyKeysTakeLinearTime) {
  std::string many = "{";
  for (int i = 0; i < 300'000; ++i) many += '"' + std::to_string(i) + "\":0,";
  many += "\"last\":1}";
  const auto parsed = parse_request_json("{\"a\":" + many + "}");
  ASSERT_TRUE(parsed);
  const JsonValue::Object& inner = *find_member(*parsed, "a")->object();
  EXPECT_EQ(inner.size(), 300'001U);
  EXPECT_EQ(*find_member(inner, "last")->integer(), 1);
  EXPECT_EQ(fault(many), "the body has 300001 fields; at most 1024 are read");
}

TEST(ParseRequestJson, KeepsOrderAndNumbersAsWritten) {
  EXPECT_EQ(again(R"( { "z" : 1.0 , "a" : [ true , null, -3, 1e2, "x\n\u00e9" ], "m":{} } )"),
            R"({"z":1.0,"a":[true,null,-3,1e2,"x\né"],"m":{}})");
  EXPECT_EQ(again(R"({"a":9223372036854775807,"b":18446744073709551615,"c":-9223372036854775808})"),
            R"({"a":9223372036854775807,"b":18446744073709551615,"c":-9223372036854775808})");
}

TEST(ParseRequestJson, TheLastValueOfARepeatedKeyIsUsed) {
  const auto parsed = parse_request_json(R"({"a":1,"b":2,"a":3})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*find_member(*parsed, "a")->integer(), 3);
  EXPECT_EQ(find_member(*parsed, "c"), nullptr);
}

std::string fast(std::string_view text) {
  const auto value = read_json_fast(text);
  if (!value) return "refused";
  std::string out;
  append_json(*value, out);
  return out;
}

std::string slow(std::string_view text) {
  const auto value = read_json_or_explain(text);
  if (!value) return "refused";
  std::string out;
  append_json(*value, out);
  return out;
}

TEST(ReadJsonFast, EqualsTheOtherParser) {
  const std::vector<std::string> values = {"0",
                                           "-0",
                                           "7",
                                           "-12",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551616",
                                           "1.5",
                                           "-0.0",
                                           "1e2",
                                           "1E+2",
                                           "1e-2",
                                           "2.50e10",
                                           "true",
                                           "false",
                                           "null",
                                           "[]",
                                           "{}",
                                           "[1,2]",
                                           R"({"a":1,"a":2})",
                                           R"("")",
                                           R"("a\\b\"c\u00e9\ud83d\ude00\/")",
                                           "[[[0]],{}]"};
  for (const std::string& value : values) {
    for (const std::string_view space : {"", " ", "\r\n\t"}) {
      const std::string text = fmt::format("{{{1}\"k\"{1}:{1}{0}{1}}}{1}", value, space);
      EXPECT_NE(fast(text), "refused") << text;
      EXPECT_EQ(fast(text), slow(text)) << text;
    }
  }
}

TEST(ReadJsonFast, RefusesWhatIsNotJson) {
  for (const std::string_view value : {"",
                                       "01",
                                       "-",
                                       "+1",
                                       "1.",
                                       ".5",
                                       "1e",
                                       "1e+",
                                       "0x1",
                                       "1_0",
                                       "1e999",
                                       "NaN",
                                       "Infinity",
                                       "tru",
                                       "truex",
                                       "nul",
                                       "nulls",
                                       "[1,]",
                                       "[1 2]",
                                       "[,1]",
                                       "{\"a\"}",
                                       "{\"a\":1,}",
                                       "{a:1}",
                                       "'a'",
                                       "\"\\x\"",
                                       "\"\\ud800\"",
                                       "\"\\ud800\\u0041\"",
                                       "\"\\udc00\"",
                                       "\"\n\"",
                                       "\"",
                                       "1}",
                                       "1]",
                                       "[1}",
                                       "1//x",
                                       "1 2"}) {
    const std::string text = fmt::format("{{\"k\":{}}}", value);
    EXPECT_EQ(fast(text), "refused") << text;
    EXPECT_EQ(slow(text), "refused") << text;
  }
  EXPECT_EQ(fast(R"({"k":1} x)"), "refused");
  EXPECT_EQ(fast("[1]"), "refused");  // no object: the other parser says so
}

// Texts one edit away from valid ones: what the fast parser accepts, the other one reads equally.
TEST(ReadJsonFast, EqualsTheOtherParserOnEditedTexts) {
  const std::string valid =
      R"({"model":"m","n":-1.5e3,"messages":[{"role":"user","content":"\u00e9\n"},null,true,[0]]})";
  const std::string_view letters = "{}[]\",:\\ 0e.-tfnu1\n";
  SplitMix64 rng(5);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = valid;
    const std::size_t at = rng.below(text.size());
    switch (rng.below(3)) {
      case 0: text[at] = letters[rng.below(letters.size())]; break;
      case 1: text.insert(at, 1, letters[rng.below(letters.size())]); break;
      default: text.erase(at, 1 + rng.below(3)); break;
    }
    const std::string result = fast(text);
    if (result == "refused") continue;
    ++accepted;
    EXPECT_EQ(result, slow(text)) << text;
  }
  EXPECT_GT(accepted, 2'000);
}

TEST(ShownValue, IsShortAndValid) {
  EXPECT_EQ(shown_value(JsonValue{nullptr}), "null");
  EXPECT_EQ(shown_value(JsonValue{true}), "true");
  EXPECT_EQ(shown_value(JsonValue{std::string("a\"b")}), R"("a\"b")");
  EXPECT_EQ(shown_value(JsonValue{JsonValue::Array{}}), "an array");
  EXPECT_EQ(shown_value(JsonValue{JsonValue::Object{}}), "an object");
  std::string long_text;
  for (int i = 0; i < 100; ++i) long_text += "é";
  const std::string shown = shown_value(JsonValue{long_text});
  EXPECT_EQ(shown, "\"" + long_text.substr(0, 48) + "\"... (200 bytes)");
  const std::string odd = shown_value(JsonValue{"x" + long_text});
  EXPECT_EQ(odd, "\"x" + long_text.substr(0, 46) + "\"... (201 bytes)");
  EXPECT_EQ(shown_value(JsonValue{JsonDecimal{std::string(100, '1')}}),
            std::string(32, '1') + "...");
}

}  // namespace
}  // namespace sluice
