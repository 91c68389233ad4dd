#include "tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/regex_syntax.h"

namespace sluice {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex) << regex.error().message;
  RegexScratch scratch;
  std::vector<TextRange> ranges;
  EXPECT_TRUE(regex->find_all(text, scratch, ranges));
  std::vector<std::string> found;
  for (const TextRange& r : ranges) found.emplace_back(text.substr(r.begin, r.end - r.begin));
  return found;
}

using Found = std::vector<std::string>;

TEST(Regex, ClassesAreTheReferencesOnes) {
  EXPECT_EQ(matches(R"(\s)", "a\u180e\u2028b\x1c"), (Found{"\u2028"}));
  EXPECT_EQ(matches(R"(\S+)", "ab cd\u00a0e"), (Found{"ab", "cd", "e"}));
  // U+1C89, a capital letter since Unicode 16.
  EXPECT_EQ(matches(R"(\p{L})", "\u1c89"), (Found{"\u1c89"}));
  EXPECT_EQ(matches(R"(\p{Lu}|\p{Ll})", "\u1c89a"), (Found{"\u1c89", "a"}));
  EXPECT_EQ(matches(R"(\P{L}+)", "\u1c89"), Found{});
  EXPECT_EQ(matches(R"(\p{^L})", "a1"), (Found{"1"}));
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a\u1c89.. b"), (Found{".."}));
  EXPECT_EQ(matches(R"(\h+)", "xyz12fg"), (Found{"12f"}));
}

TEST(Regex, RubyFlavour) {
  EXPECT_EQ(matches("^a$", "a\na"), (Found{"a", "a"}));
  EXPECT_EQ(matches("a.b", "a\nb"), Found{});
  EXPECT_EQ(matches("(?m:a.b)", "a\nb"), (Found{"a\nb"}));
  EXPECT_EQ(matches("(?i)x", "xX"), (Found{"x", "X"}));
  // {n,m}+ repeats the interval; it is not possessive.
  EXPECT_EQ(matches("a{1,2}+ab", "aaaaab"), (Found{"aaaaab"}));
  EXPECT_EQ(matches("(?:ab){1,2}+abc", "abababc"), (Found{"abababc"}));
  EXPECT_EQ(matches("a++b", "aab"), (Found{"aab"}));
  EXPECT_EQ(matches("xa{,2}", "xaaa"), (Found{"xaa"}));
  EXPECT_EQ(matches(R"(\u00e9\x41\x{20ac}\v)", "\u00e9A\u20ac\v"), (Found{"\u00e9A\u20ac\v"}));
}

TEST(Regex, EmptyMatchesAdvance) { EXPECT_EQ(matches("a*", "ba\u00e9"), (Found{"", "a", ""})); }

TEST(Regex, RefusesWhatHasNoCounterpartByName) {
  for (const auto& [pattern, name] :
       std::vector<std::pair<std::string, std::string>>{{R"([\p{L}&&[^a]])", "&&"},
                                                        {R"(\bword)", "\\b"},
                                                        {R"(\Gx)", "\\G"},
                                                        {R"(\K)", "\\K"},
                                                        {R"(\w+)", "\\w"},
                                                        {"[[:alpha:]]", "["},
                                                        {"(*FAIL)", "(*"},
                                                        {"(?P<n>x)", "(?P"},
                                                        {"(?x: a)", "(?x"},
                                                        {R"([\S])", "\\S inside a class"},
                                                        {"a{2}?", "{n}?"},
                                                        {"a{b}", "{ as a letter"}}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kUnsupported) << pattern;
    EXPECT_THAT(regex.error().message, testing::HasSubstr(name));
  }
  for (const std::string pattern : {"(", "[a", "a\\", "*", R"(\p{Nonsense})"}) {
    EXPECT_FALSE(Regex::compile(pattern)) << pattern;
  }
}

TEST(Regex, CatastrophicBacktrackingIsAnError) {
  const auto regex = Regex::compile("(?:a+)+(?=z)");
  ASSERT_TRUE(regex);
  RegexScratch scratch;
  std::vector<TextRange> ranges;
  const auto status = regex->find_all(std::string(64, 'a') + "c", scratch, ranges);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
