#include "grammar/grammar_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "grammar/gbnf_grammar.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

std::string json_rules(const std::string& root) {
  return "root ::= " + root + R"gbnf(
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (pair ("," " "? pair)*)? "}"
pair   ::= string ":" " "? value
array  ::= "[" (value ("," value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-f]{4}))* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
)gbnf";
}

TEST(GrammarMatcher, MasksEqualTheSlowReference) {
  const auto vocabulary = test_vocabulary(test_words());
  const std::string grammars[] = {
      json_rules("value"),
      json_rules("object"),
      // Two readings at once, of different depths.
      json_rules("string \"ab\" | \"\\\"\" [a-z]* \"\\\"\" \"a\" number"),
      "root ::= \"(\" root* \")\"",
      "root ::= a \"bb\" | \"a\"* \"b\"\na ::= \"a\" a | \"a\"",
      "root ::= [äö你]* \"the\" (\" the\")*",
      "root ::= (x y?)*\nx ::= \"a\"? \"b\"?\ny ::= \"aa\" | x \"12\"",
  };
  for (const std::string& text : grammars) {
    const auto grammar = compile_or_fail(gbnf_grammar(text), vocabulary);
    ASSERT_NE(grammar, nullptr) << text;
    for (std::uint64_t seed = 0; seed < 40; ++seed) checked_walk(grammar, seed, 60);
  }
}

TEST(GrammarMatcher, MasksOfRegexesEqualTheSlowReference) {
  const auto vocabulary = test_vocabulary(test_words());
  for (const char* pattern : {"(ab?c|a+b){2,5}", "[^\"]*\"(the|then)?", "\\d{2,3}(\\.\\d+)?e\\+1",
                              "(true|false|null|name: \\w{3,8}){1,3}", ".{0,12}ä"}) {
    const auto grammar = compile_or_fail(regex_grammar(pattern), vocabulary);
    ASSERT_NE(grammar, nullptr) << pattern;
    for (std::uint64_t seed = 0; seed < 40; ++seed) checked_walk(grammar, seed, 60);
  }
}

TEST(GrammarMatcher, EndsOnlyWhereTheGrammarDoes) {
  const auto grammar = compile_or_fail(regex_grammar("ab+"), test_vocabulary({"bb"}));
  ASSERT_NE(grammar, nullptr);
  GrammarMatcher matcher;
  EXPECT_FALSE(matcher.active());
  matcher.assign(grammar);
  ASSERT_TRUE(matcher.active());
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_FALSE(matcher.can_end());
  EXPECT_TRUE(matcher.accept(256));
  EXPECT_TRUE(matcher.can_end());
  EXPECT_FALSE(matcher.accept('a'));
  EXPECT_FALSE(matcher.can_end());
  std::vector<std::uint32_t> mask(grammar->trie().mask_words(), ~0U);
  matcher.fill(mask);
  EXPECT_EQ(mask, std::vector<std::uint32_t>(mask.size(), 0U));
  matcher.assign(grammar);
  EXPECT_FALSE(matcher.accept(257)) << "a token without bytes";
  matcher.assign(nullptr);
  EXPECT_FALSE(matcher.active());
}

TEST(GrammarMatcher, StaysSmallOverLongTexts) {
  const auto grammar = compile_or_fail(gbnf_grammar(json_rules("value")), test_vocabulary({}));
  ASSERT_NE(grammar, nullptr);
  GrammarMatcher matcher;
  matcher.assign(grammar);
  std::vector<std::uint32_t> mask(grammar->trie().mask_words());
  std::string text;
  const auto feed = [&](std::string_view part) {
    for (const char byte : part) {
      matcher.fill(mask);
      ASSERT_TRUE(matcher.accept(static_cast<std::uint8_t>(byte))) << text.size();
      text += byte;
    }
  };
  feed(std::string(3'000, '['));
  EXPECT_EQ(mask, reference_mask(*grammar, text.substr(0, text.size() - 1)));
  for (int i = 0; i < 500; ++i) feed(R"({"key":"value","list":[1,2]},)");
  matcher.fill(mask);
  EXPECT_EQ(mask, reference_mask(*grammar, text));
  feed("1" + std::string(3'000, ']'));
  EXPECT_TRUE(matcher.can_end());
}

TEST(TokenGrammar, SharesTheMasksOfEqualRules) {
  const auto vocabulary = test_vocabulary(test_words());
  const auto first = compile_or_fail(gbnf_grammar(json_rules("value \"x\"")), vocabulary);
  const auto second = compile_or_fail(gbnf_grammar(json_rules("\"[zq]\" value")), vocabulary);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  for (std::uint64_t seed = 0; seed < 20; ++seed) checked_walk(second, seed, 60);
  EXPECT_EQ(second->late_masks(), 0U);
}

}  // namespace
}  // namespace sluice
