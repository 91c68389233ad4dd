#include "grammar/regex_grammar.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "base/rng.h"
#include "grammar/grammar_automaton.h"
#include "grammar/test_grammar.h"

namespace sluice {
namespace {

TextFit fit_regex(const std::string& pattern, const std::string& text) {
  const auto grammar = regex_grammar(pattern);
  if (!grammar) {
    ADD_FAILURE() << grammar.error().message;
    return TextFit::kNone;
  }
  const auto automaton = GrammarAutomaton::compile(*grammar);
  if (!automaton) {
    ADD_FAILURE() << automaton.error().message;
    return TextFit::kNone;
  }
  return fit(*automaton, text);
}

TEST(RegexGrammar, MatchesWholeTexts) {
  struct Case {
    const char* pattern;
    const char* whole;
    const char* none;
  };
  const Case cases[] = {
      {R"(\d{3}-\d{4})", "555-1234", "5555"},
      {R"(^(?:yes|no)$)", "yes", "maybe"},
      {R"((?P<year>\d{4})-(?<month>0[1-9]|1[0-2]))", "2024-11", "2024-13"},
      {R"([^a-c\]]+)", "xyz", "xa"},
      {R"([\w.-]+@[\w]+\.com)", "a.b-c@d.com", "a b"},
      {R"(\u00e4\x41[\u{1F600}-\u{1F64F}])", "äA\xF0\x9F\x98\x81", "äB"},
      {R"(a{,2}b{2,}?c{2})", "aabbbcc", "aaab"},
      {R"(.*)", "anything, even ä", "two\nlines"},
      {R"([]x]+)", "]x]", "y"},
      {R"(a{b)", "a{b", "ab"},
      {R"(|a)", "a", "b"},
      {R"([\b\n])", "\b", "b"},
      {R"([^\x00-\x7f])", "\xE2\x82\xAC", "\xC1"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(fit_regex(c.pattern, c.whole), TextFit::kWhole) << c.pattern;
    EXPECT_EQ(fit_regex(c.pattern, c.none), TextFit::kNone) << c.pattern;
  }
}

TEST(RegexGrammar, NamesWhatItRefuses) {
  struct Case {
    const char* pattern;
    const char* message;
  };
  const Case cases[] = {
      {"(a", "( without )"},
      {"a)", ") without ("},
      {"[a", "[ without ]"},
      {"*a", "nothing before"},
      {R"(\1)", "\\1 is not served"},
      {R"(\bword)", "\\b"},
      {"(?=a)", "look-around"},
      {"(?i)a", "look-around"},
      {"a^b", "anchor inside"},
      {"(^a)", "anchor inside"},
      {"a++", "possessive"},
      {"a**", "repeats a repetition"},
      {"[z-a]", "range"},
      {R"(\p{L})", "\\p"},
      {R"(\uD800)", "no character"},
      {"a{5,2}", "below"},
      {"a{999999}", "more than"},
      {"\\", "backslash"},
      {"[[:alpha:]]", "POSIX"},
      {"\xFF", "UTF-8"},
  };
  for (const Case& c : cases) {
    const auto grammar = regex_grammar(c.pattern);
    ASSERT_FALSE(grammar) << c.pattern;
    EXPECT_NE(grammar.error().message.find(c.message), std::string::npos)
        << c.pattern << ": " << grammar.error().message;
  }
  const auto deep = regex_grammar(std::string(5'000, '('));
  EXPECT_FALSE(deep);
}

std::string random_pattern(SplitMix64& random, int depth) {
  const auto pick = [&](std::uint64_t n) { return random() % n; };
  constexpr const char* kRepeats[] = {"*", "+", "?", "{2}", "{0,2}", "{1,}"};
  if (depth == 0) {
    constexpr const char* kAtoms[] = {"a", "b", "c", ".", "[ab]", "[^a]", "\\d", "\\w", "-"};
    return kAtoms[pick(std::size(kAtoms))];
  }
  switch (pick(5)) {
    case 0:
      return "(" + random_pattern(random, depth - 1) + "|" + random_pattern(random, depth - 1) +
             ")";
    case 1: return "(" + random_pattern(random, depth - 1) + ")" + kRepeats[pick(6)];
    default: return random_pattern(random, depth - 1) + random_pattern(random, depth - 1);
  }
}

TEST(RegexGrammar, AgreesWithTheStandardLibrary) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    const std::string pattern = random_pattern(random, 3);
    const std::regex reference(pattern);
    const auto grammar = regex_grammar(pattern);
    ASSERT_TRUE(grammar) << pattern;
    const auto automaton = GrammarAutomaton::compile(*grammar);
    ASSERT_TRUE(automaton) << pattern;
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (std::uint64_t length = random() % 7; length > 0; --length) {
        text += "aabbc1-"[random() % 7];
      }
      EXPECT_EQ(fit(*automaton, text) == TextFit::kWhole, std::regex_match(text, reference))
          << pattern << " on " << text;
    }
  }
}

}  // namespace
}  // namespace sluice
