#include "grammar/alike_states.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/gbnf_grammar.h"
#include "grammar/regex_grammar.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

// The outcome of a text from a state of a rule, read without calls: -1 dead, 0 inside, 1 where
// the rule may end, 2 at a state that calls rules, whose outcome depends on them.
int outcome(const GrammarAutomaton& automaton, std::int32_t state, const std::string& text,
            std::int32_t& at) {
  for (const char byte : text) {
    if (!automaton.calls(state).empty()) break;
    state = automaton.next(state, automaton.class_of(static_cast<std::uint8_t>(byte)));
    if (state == GrammarAutomaton::kDead) return -1;
  }
  at = state;
  if (!automaton.calls(state).empty()) return 2;
  return automaton.final(state) ? 1 : 0;
}

// All texts of `alphabet` with at most `bytes` bytes have the same outcome from both states.
void expect_alike(const GrammarAutomaton& automaton, std::int32_t a, std::int32_t b, int bytes,
                  const std::string& alphabet, const std::string& text = {}) {
  std::int32_t at_a = a;
  std::int32_t at_b = b;
  const int found = outcome(automaton, a, text, at_a);
  ASSERT_EQ(found, outcome(automaton, b, text, at_b)) << a << " " << b << " \"" << text << '"';
  if (found == 2) {
    ASSERT_EQ(at_a, at_b);
  }
  if (found == -1 || found == 2 || bytes == 0) return;
  for (const char letter : alphabet) {
    expect_alike(automaton, a, b, bytes - 1, alphabet, text + letter);
  }
}

int check(const Grammar& grammar) {
  const auto automaton = GrammarAutomaton::compile(grammar);
  EXPECT_TRUE(automaton.has_value());
  const std::vector<AlikeState> alike = find_alike_states(*automaton);
  EXPECT_EQ(alike.size(), automaton->num_states());
  int links = 0;
  for (std::size_t s = 0; s < alike.size(); ++s) {
    if (alike[s].state < 0) continue;
    ++links;
    EXPECT_GT(alike[s].bytes, 0);
    const auto state = static_cast<std::int32_t>(s);
    expect_alike(*automaton, state, alike[s].state, std::min(alike[s].bytes, 6), "ab\xC3\xA4");
    // Links have no cycle.
    std::size_t steps = 0;
    for (std::int32_t at = state; at >= 0; at = alike[static_cast<std::size_t>(at)].state) {
      EXPECT_LE(++steps, alike.size()) << "a cycle through state " << s;
      if (steps > alike.size()) break;
    }
  }
  return links;
}

TEST(AlikeStates, ReadShortTextsAlike) {
  for (const char* pattern :
       {".{0,12}", "[ab]{3,9}b", "(a|b)*abb", "(ab){1,7}ä?", "a", "ä{2,5}a*"}) {
    check(*regex_grammar(pattern));
  }
  check(*gbnf_grammar("root ::= x{2,6} \"a\"\nx ::= \"ab\" | \"b\" y | y\ny ::= [ab]{1,4}"));
}

TEST(AlikeStates, KnowTheNeighboursOfABoundedText) {
  const auto automaton = GrammarAutomaton::compile(*regex_grammar("[ab]{0,40}"));
  ASSERT_TRUE(automaton.has_value());
  const std::vector<AlikeState> alike = find_alike_states(*automaton);
  ASSERT_EQ(alike.size(), 41U);
  // With n characters left, texts of n bytes read as with more: the mask of each length is known
  // from the next one except for longer tokens.
  std::vector<int> found(41, 0);
  for (const AlikeState& one : alike) ++found[static_cast<std::size_t>(one.bytes)];
  EXPECT_EQ(found[0], 2) << "all or nothing left";
  for (int bytes = 1; bytes < 40; ++bytes)
    EXPECT_EQ(found[static_cast<std::size_t>(bytes)], 1) << bytes;
}

TEST(AlikeStates, MasksOfLongBoundsEqualTheSlowReference) {
  const auto vocabulary = test_vocabulary(test_words());
  for (const char* pattern :
       {"[^x]{0,70}", "([a-z ]{0,30}\"){2}", "\\{\"name\": \"[^\"]{3,25}\"\\}"}) {
    const auto grammar = compile_or_fail(regex_grammar(pattern), vocabulary);
    ASSERT_NE(grammar, nullptr) << pattern;
    for (std::uint64_t seed = 0; seed < 30; ++seed) checked_walk(grammar, seed, 90);
    EXPECT_EQ(grammar->late_masks(), 0U);
  }
}

}  // namespace
}  // namespace sluice
