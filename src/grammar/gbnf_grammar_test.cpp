#include "grammar/gbnf_grammar.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/grammar_automaton.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

constexpr const char* kJsonGrammar = R"gbnf(
# JSON as in llama.cpp's examples
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)gbnf";

TEST(GbnfGrammar, ReadsLlamaCppsJson) {
  const auto grammar = gbnf_grammar(kJsonGrammar);
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto automaton = GrammarAutomaton::compile(*grammar);
  ASSERT_TRUE(automaton) << automaton.error().message;
  EXPECT_EQ(fit(*automaton, R"({"a": [1, -2.5e+3, {"b": "x\n\u00e4"}], "c": null})"),
            TextFit::kWhole);
  EXPECT_EQ(fit(*automaton, R"({"a": [1,)"), TextFit::kPrefix);
  EXPECT_EQ(fit(*automaton, R"({"a" 1})"), TextFit::kNone);
  EXPECT_EQ(fit(*automaton, R"([1])"), TextFit::kNone);
}

TEST(GbnfGrammar, KnowsEscapesAndCounts) {
  const auto grammar =
      gbnf_grammar("root ::= \"\\x41\\u00e4\\t\\\"\" [\\]\\-a-c] .{2} x{1,} # end\nx ::= \"x\"");
  ASSERT_TRUE(grammar) << grammar.error().message;
  const auto automaton = GrammarAutomaton::compile(*grammar);
  ASSERT_TRUE(automaton) << automaton.error().message;
  EXPECT_EQ(fit(*automaton, "Aä\t\"]ö\nxx"), TextFit::kWhole);
  EXPECT_EQ(fit(*automaton, "Aä\t\"dööx"), TextFit::kNone);
}

TEST(GbnfGrammar, NamesTheLineOfAnError) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"", "no rule root"},
      {"item ::= \"a\"", "no rule root"},
      {"root ::= \"a\nb ::= \"c\"", "line 1"},
      {"root ::= a\na = \"b\"", "line 2 of the grammar: expected ::= after a"},
      {"root ::= (\"a\"", "expected )"},
      {"root ::= [a", "no closing ]"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
      {"root ::= \"\\q\"", "not an escape"},
      {"root ::= \"a\"{3,1}", "below"},
      {"root ::= \"a\"{999999}", "more than"},
      {"root ::= *", "unexpected *"},
      {"root ::= \"\\", "backslash"},
  };
  for (const Case& c : cases) {
    const auto grammar = gbnf_grammar(c.text);
    ASSERT_FALSE(grammar) << c.text;
    EXPECT_NE(grammar.error().message.find(c.message), std::string::npos)
        << c.text << ": " << grammar.error().message;
  }
  EXPECT_FALSE(gbnf_grammar("root ::= " + std::string(5'000, '(')));
}

}  // namespace
}  // namespace sluice
