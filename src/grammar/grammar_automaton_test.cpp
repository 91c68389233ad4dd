#include "grammar/grammar_automaton.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/gbnf_grammar.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

Result<GrammarAutomaton> compile_gbnf(const std::string& text, const GrammarLimits& limits = {}) {
  const auto grammar = gbnf_grammar(text);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return GrammarAutomaton::compile(*grammar, {}, limits);
}

std::string error_of(const Result<GrammarAutomaton>& result) {
  return result ? "" : result.error().message;
}

TEST(GrammarAutomaton, FollowsNestedCalls) {
  const auto automaton = compile_gbnf("root ::= \"(\" root* \")\"");
  ASSERT_TRUE(automaton) << error_of(automaton);
  EXPECT_EQ(fit(*automaton, "(()(()))"), TextFit::kWhole);
  EXPECT_EQ(fit(*automaton, "(()"), TextFit::kPrefix);
  EXPECT_EQ(fit(*automaton, "())"), TextFit::kNone);
  const std::string deep(20'000, '(');
  EXPECT_EQ(fit(*automaton, deep + std::string(20'000, ')')), TextFit::kWhole);
}

TEST(GrammarAutomaton, RefusesLeftRecursionByName) {
  EXPECT_NE(error_of(compile_gbnf("root ::= list\nlist ::= list \",\" \"a\" | \"a\""))
                .find("left recursive: the rule list"),
            std::string::npos);
  // Behind a rule that may be empty, and through two rules.
  EXPECT_NE(error_of(compile_gbnf("root ::= blank root \"a\" | \"b\"\nblank ::= \" \"?"))
                .find("left recursive"),
            std::string::npos);
  EXPECT_NE(error_of(compile_gbnf("root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\" | \"w\""))
                .find("left recursive"),
            std::string::npos);
}

TEST(GrammarAutomaton, RightRecursionKeepsOneFrame) {
  const auto automaton = compile_gbnf("root ::= \"a\" root | \"b\"");
  ASSERT_TRUE(automaton) << error_of(automaton);
  GrammarStacks stacks(*automaton);
  GrammarStacks::SetId set = stacks.enter(automaton->start());
  for (int i = 0; i < 10'000; ++i) set = stacks.step(set, 'a');
  ASSERT_NE(set, GrammarStacks::kDead);
  EXPECT_LT(stacks.size(), 20U);
}

TEST(GrammarAutomaton, NeverEntersWhatCannotEnd) {
  const auto automaton = compile_gbnf("root ::= \"a\" loop | \"ab\"\nloop ::= \"b\" loop");
  ASSERT_TRUE(automaton) << error_of(automaton);
  EXPECT_EQ(fit(*automaton, "ab"), TextFit::kWhole);
  EXPECT_EQ(fit(*automaton, "abb"), TextFit::kNone);
  EXPECT_NE(error_of(compile_gbnf("root ::= \"a\" root")).find("matches no text"),
            std::string::npos);
}

TEST(GrammarAutomaton, RepeatsRulesThatMayBeEmpty) {
  const auto automaton = compile_gbnf("root ::= (a)* \"c\"\na ::= \"a\"? \"b\"?");
  ASSERT_TRUE(automaton) << error_of(automaton);
  EXPECT_EQ(fit(*automaton, "abbaac"), TextFit::kWhole);
  EXPECT_EQ(fit(*automaton, "c"), TextFit::kWhole);
  EXPECT_EQ(fit(*automaton, "ca"), TextFit::kNone);
}

TEST(GrammarAutomaton, RefusesWhatGrowsTooLarge) {
  // Its deterministic automaton has 2^21 states.
  const auto grammar = regex_grammar("(a|b)*a(a|b){20}");
  ASSERT_TRUE(grammar);
  EXPECT_NE(error_of(GrammarAutomaton::compile(*grammar)).find("too large"), std::string::npos);
  const auto counts = regex_grammar("((a{1000}){1000}){1000}");
  ASSERT_TRUE(counts);
  EXPECT_NE(error_of(GrammarAutomaton::compile(*counts)).find("too large"), std::string::npos);
  EXPECT_NE(error_of(compile_gbnf("root ::= other")).find("other, which is not defined"),
            std::string::npos);
}

TEST(GrammarAutomaton, EndsWithTheStopChecksError) {
  const auto grammar = regex_grammar("(a|b)*a(a|b){18}");
  ASSERT_TRUE(grammar);
  const StopCheck stop = [] { return Status(Error{ErrorCode::kCancelled, "gone"}); };
  EXPECT_EQ(error_of(GrammarAutomaton::compile(*grammar, stop)), "gone");
}

TEST(GrammarAutomaton, OrdersItemsOfLists) {
  Grammar grammar;
  const ExprId a = grammar.literal("a");
  const ExprId b = grammar.literal("b");
  const ExprId c = grammar.literal("c");
  grammar.set_start(grammar.add_rule(
      "root",
      grammar.list({{a, false, false}, {b, true, false}, {c, false, true}}, grammar.literal(","))));
  const auto automaton = GrammarAutomaton::compile(grammar);
  ASSERT_TRUE(automaton) << error_of(automaton);
  for (const char* text : {"a,b", "b", "a,b,c", "b,c,c,c"}) {
    EXPECT_EQ(fit(*automaton, text), TextFit::kWhole) << text;
  }
  for (const char* text : {",b", "a,c", "b,a", "c", "b,,c", "ab"}) {
    EXPECT_EQ(fit(*automaton, text), TextFit::kNone) << text;
  }
  EXPECT_EQ(fit(*automaton, ""), TextFit::kPrefix);
}

}  // namespace
}  // namespace sluice
