#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/grammar_compiler.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

JsonValue to_value(const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return {json.get<bool>()};
  if (json.is_number_integer()) return {json.get<std::int64_t>()};
  if (json.is_number()) return {JsonDecimal{dump_json(json)}};
  if (json.is_string()) return {json.get<std::string>()};
  if (json.is_array()) {
    JsonValue::Array array;
    for (const auto& item : json) array.push_back(to_value(item));
    return {std::move(array)};
  }
  if (!json.is_object()) return {};
  JsonValue::Object object;
  for (const auto& [name, value] : json.items()) object.push_back({name, to_value(value)});
  return {std::move(object)};
}

TextFit fit_schema(const std::string& schema, const std::string& text) {
  const auto grammar = json_schema_grammar(to_value(parse_ordered_json(schema)));
  if (!grammar) {
    ADD_FAILURE() << schema << ": " << grammar.error().message;
    return TextFit::kNone;
  }
  const auto automaton = GrammarAutomaton::compile(*grammar);
  if (!automaton) {
    ADD_FAILURE() << schema << ": " << automaton.error().message;
    return TextFit::kNone;
  }
  return fit(*automaton, text);
}

std::string schema_error(const std::string& schema) {
  const auto grammar = json_schema_grammar(to_value(parse_ordered_json(schema)));
  if (!grammar) return grammar.error().message;
  const auto automaton = GrammarAutomaton::compile(*grammar);
  return automaton ? "" : automaton.error().message;
}

struct SchemaCase {
  const char* schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
};

void check_cases(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) {
    for (const std::string& text : c.valid) {
      EXPECT_EQ(fit_schema(c.schema, text), TextFit::kWhole) << c.schema << " and " << text;
    }
    for (const std::string& text : c.invalid) {
      EXPECT_NE(fit_schema(c.schema, text), TextFit::kWhole) << c.schema << " and " << text;
    }
  }
}

TEST(JsonSchema, TypesAndConstants) {
  check_cases({
      {R"({"type":"null"})", {"null"}, {"nul", "0"}},
      {R"({"type":["boolean","null"]})", {"true", "false", "null"}, {"1"}},
      {R"({"const":{"a":[1,"x"]}})", {R"({"a":[1,"x"]})", R"({"a": [1, "x"]})"}, {R"({"a":[1]})"}},
      {R"({"enum":["a\"b",2,null]})", {R"("a\"b")", "2", "null"}, {"\"a\"", "3"}},
      {R"({"enum":["a",2],"type":"string"})", {"\"a\""}, {"2"}},
      {R"({"type":"integer"})", {"0", "-12", "123456789012345678"}, {"01", "1.0", "1e3", "-"}},
      {R"({"type":"number"})", {"0.5", "-1e-5", "12.25E+10"}, {".5", "1.", "1e", "00"}},
      {"true", {"[1, {\"a\":null}]", "\"x\""}, {"[1,]", "[1 ]", "{\"a\" :1}"}},
  });
}

TEST(JsonSchema, Strings) {
  check_cases({
      {R"({"type":"string"})",
       {R"("")", R"("a\n\u00e4\ud83d\ude00 ö")"},
       {"\"a", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\ude00")"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("ö\n你")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type":"string","pattern":"^[a-c\"]+$"})",
       {R"("abc")", R"("a\"b")"},
       {R"("d")", R"("")"}},
      {R"({"type":"string","pattern":"b+"})", {R"("abba")", R"("b")"}, {R"("aa")"}},
      {R"({"type":"string","pattern":"^a|z$"})", {R"("axx")", R"("xxz")"}, {R"("xx")"}},
      {R"({"type":"string","format":"date"})", {R"("2024-02-28")"}, {R"("2024-02-30")"}},
      {R"({"type":"string","format":"date-time"})", {R"("2024-02-28T01:02:03Z")"}, {R"("x")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {R"({"type":"string","format":"color"})", {R"("anything")"}, {"1"}},
  });
}

TEST(JsonSchema, IntegerRangesAreExact) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 0}, {-5, 5}, {7, 123}, {-120, -9}, {99, 101}, {-1, 0}, {1000, 1001}, {0, 999}}) {
    const std::string schema = R"({"type":"integer","minimum":)" + std::to_string(low) +
                               R"(,"exclusiveMaximum":)" + std::to_string(high + 1) + "}";
    const auto grammar = json_schema_grammar(to_value(parse_ordered_json(schema)));
    ASSERT_TRUE(grammar);
    const auto automaton = GrammarAutomaton::compile(*grammar);
    ASSERT_TRUE(automaton);
    for (int i = -1100; i <= 1100; ++i) {
      EXPECT_EQ(fit(*automaton, std::to_string(i)) == TextFit::kWhole, i >= low && i <= high)
          << schema << " and " << i;
    }
    EXPECT_NE(fit(*automaton, "-0"), TextFit::kWhole);
  }
}

TEST(JsonSchema, NumberRanges) {
  check_cases({
      {R"({"type":"number","minimum":0})", {"0", "0.5", "17.25"}, {"-0.5", "-1", "1e5"}},
      {R"({"type":"number","minimum":-2,"maximum":1})",
       {"-2", "-1.99", "-0.5", "0.0", "0.99", "1"},
       {"-2.1", "1.0", "2", "-2.0"}},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":3})", {"1", "2.9", "3"}, {"0", "3.1"}},
      {R"({"type":"integer","minimum":1.5,"exclusiveMaximum":3.5})", {"2", "3"}, {"1", "4"}},
  });
}

TEST(JsonSchema, Objects) {
  constexpr const char* kThree =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"},
          "c":{"type":"null"}},"required":["b"],"additionalProperties":false})";
  check_cases({
      {kThree,
       {R"({"b":true})", R"({"a":1, "b":true})", R"({"a": 1,"b": true,"c":null})"},
       {"{}", R"({"b":true,"a":1})", R"({"b":true,"d":1})", R"({"a":1})", R"({"b":true,})"}},
      {R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
       {R"({"a":"x","b":1,"ab":2})", R"({"b":1})", "{}", R"({"":3})"},
       {R"({"b":"x"})", R"({"a":1,"a":2})", R"({"b":1,"a":"x"})"}},
      {R"({"type":"object"})", {R"({"x":[1]})", "{}"}, {"[]"}},
      {R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":1,
           "maxProperties":2})",
       {R"({"a":null})", R"({"a":null,"b":null})"},
       {"{}", R"({"a":null,"b":null,"c":null})"}},
      {R"({"type":"object","required":["z"],"properties":{"a":{}},"additionalProperties":true})",
       {R"({"z":1})", R"({"a":1,"z":1,"q":2})"},
       {R"({"a":1})"}},
      {R"({"properties":{}, "additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
  });
}

TEST(JsonSchema, Arrays) {
  check_cases({
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1, 2,3]"},
       {"[1]", "[1,2,3,4]", "[]"}},
      {R"({"type":"array","maxItems":1})", {"[]", "[[]]"}, {"[1,2]"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":false})",
       {"[null, true]"},
       {"[null]", "[null,true,1]"}},
  });
}

TEST(JsonSchema, BranchesAndReferences) {
  check_cases({
      {R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"null"}},
      {R"({"type":"object","properties":{"k":{"const":1}},"anyOf":[{"required":["k"]}]})",
       {R"({"k":1})"},
       {"{}"}},
      {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},
                    {"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]})",
       {R"({"t":"a"})", R"({"t":"b"})"},
       {R"({"t":"c"})"}},
      {R"({"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"null"}},"description":"d"})",
       {"null"},
       {"1"}},
      {R"({"$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},
           {"type":"null"}]}},"required":["next"]}},"$ref":"#/$defs/node"})",
       {R"({"next":{"next":{"next":null}}})"},
       {R"({"next":{}})"}},
      {R"({"type":"object","properties":{"a~/b":{"type":"null"},
           "same":{"$ref":"#/properties/a~0~1b"}}})",
       {R"({"a~/b":null,"same":null})"},
       {R"({"same":1})"}},
  });
}

// A name's length is the depth of the expression of all other names, and a stack has an end.
TEST(JsonSchema, LongNamesBesideFurtherPropertiesAreRefused) {
  const auto schema = [](std::size_t length, const char* additional) {
    return R"({"properties":{")" + std::string(length, 'k') + R"(":{}},"additionalProperties":)" +
           additional + "}";
  };
  EXPECT_NE(schema_error(schema(500'000, "true")).find("property name of more than"),
            std::string::npos);
  EXPECT_EQ(schema_error(schema(1024, "true")), "");
  EXPECT_EQ(schema_error(schema(10'000, "false")), "");
}

TEST(JsonSchema, RefusesByNameAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not":{}})", "at #: the keyword not"},
      {R"({"properties":{"a":{"items":{"patternProperties":{}}}}})",
       "at #/properties/a/items: the keyword patternProperties"},
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"type":"number","multipleOf":0.1})", "multipleOf"},
      {R"({"type":"text"})", "type must be one of"},
      {R"({"$ref":"http://x"})", "other documents"},
      {R"({"$ref":"#/$defs/x"})", "names nothing"},
      {R"({"$ref":"#","minLength":1})", "minLength beside $ref"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf"},
      {R"({"allOf":[{},{}]})", "allOf"},
      {R"({"anyOf":[]})", "at least one"},
      {R"({"type":"string","pattern":"(a"})", "at #: at byte"},
      {R"({"type":"string","pattern":"a","maxLength":3})", "together"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no integer"},
      {R"({"enum":[1],"type":"string"})", "no value of the given type"},
      {R"({"required":["x"],"properties":{"a":{}},"additionalProperties":false})", "requires"},
      {R"({"type":"string","maxLength":100000})", "too large"},
      {R"({"$ref":"#"})", "matches no text"},
      {"3", "must be an object"},
  };
  for (const auto& [schema, message] : cases) {
    const std::string error = schema_error(schema);
    EXPECT_NE(error.find(message), std::string::npos) << schema << ": " << error;
  }
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += R"({"type":"array","items":)";
  EXPECT_NE(schema_error(deep + "{}" + std::string(200, '}')).find("nested deeper"),
            std::string::npos);
}

TEST(JsonSchema, WalksEndInTextsThatParse) {
  const auto vocabulary = test_vocabulary(test_words());
  for (const char* schema :
       {"true", R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},
                    "n":{"type":"integer","minimum":0,"maximum":120},
                    "tags":{"type":"array","items":{"enum":["ab","abc","the"]},"maxItems":3}},
                    "required":["name","n","tags"]})"}) {
    const auto grammar =
        compile_or_fail(json_schema_grammar(to_value(parse_ordered_json(schema))), vocabulary);
    ASSERT_NE(grammar, nullptr);
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const std::string text = checked_walk(grammar, seed, 80);
      if (fit(grammar->automaton(), text) != TextFit::kWhole) continue;
      EXPECT_FALSE(parse_json(text).is_discarded()) << text;
    }
  }
}

TEST(GrammarCompiler, KeepsGrammarsAndReportsErrors) {
  GrammarCompiler compiler;
  int built = 0;
  const auto tokens = [&] {
    ++built;
    return TokenTrie(std::vector<std::string>{"a", "b", "ab"}, 3);
  };
  GrammarSpec spec;
  spec.kind = GrammarKind::kRegex;
  spec.text = "(ab)+";
  const auto first = compiler.compile(spec, tokens);
  const auto second = compiler.compile(spec, tokens);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(built, 1);
  spec.text = "(ab";
  EXPECT_FALSE(compiler.compile(spec, tokens));
  GrammarSpec choice;
  choice.kind = GrammarKind::kChoice;
  choice.json = JsonValue{JsonValue::Array()};
  EXPECT_FALSE(compiler.compile(choice, tokens));
}

TEST(GrammarCompiler, ReasoningComesBeforeTheAnswer) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kRegex;
  spec.text = "yes|no";
  spec.lead = ReasoningLead{"<think>", "</think>", false};
  const auto fit_spec = [&](const std::string& text) {
    const auto grammar = make_grammar(spec);
    EXPECT_TRUE(grammar);
    const auto automaton = GrammarAutomaton::compile(*grammar);
    EXPECT_TRUE(automaton) << automaton.error().message;
    return fit(*automaton, text);
  };
  EXPECT_EQ(fit_spec("yes"), TextFit::kWhole);
  EXPECT_EQ(fit_spec("<think>a </thi <</think>\n\nno"), TextFit::kWhole);
  EXPECT_EQ(fit_spec("<think>a</think>x"), TextFit::kNone);
  EXPECT_EQ(fit_spec("hm </think>no"), TextFit::kNone);
  spec.lead->inside = true;
  EXPECT_EQ(fit_spec("hm ö</think>no"), TextFit::kWhole);
  EXPECT_EQ(fit_spec("yes"), TextFit::kPrefix);
}

}  // namespace
}  // namespace sluice
