#include "tokenizer/split_scanner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "tests/support/sanitized.h"
#include "tokenizer/regex.h"
#include "tokenizer/test_random.h"

namespace sluice {
namespace {

const std::vector<std::string> kPatterns = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

std::vector<std::string> scan(KnownPattern pattern, std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scan_match(pattern, text, at);
    EXPECT_GT(end, at);
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::vector<std::string> match(const Regex& regex, std::string_view text) {
  RegexScratch scratch;
  std::vector<TextRange> ranges;
  EXPECT_TRUE(regex.find_all(text, scratch, ranges));
  std::vector<std::string> pieces;
  for (const TextRange& r : ranges) pieces.emplace_back(text.substr(r.begin, r.end - r.begin));
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(SplitScanner, Gpt2) {
  const auto pattern = recognize_pattern(kPatterns[0]);
  ASSERT_EQ(pattern, KnownPattern::kGpt2);
  EXPECT_EQ(scan(*pattern, "I'll go  to 12 \n places!! x'S"),
            (Pieces{"I", "'ll", " go", " ", " to", " 12", " \n", " places", "!!", " x", "'", "S"}));
}

TEST(SplitScanner, Llama3) {
  const auto pattern = recognize_pattern(kPatterns[2]);
  ASSERT_EQ(pattern, KnownPattern::kWordsDigits3);
  EXPECT_EQ(
      scan(*pattern, "I'LL pay $12345,\n\n  ok\t.x'\u017F"),
      (Pieces{"I", "'LL", " pay", " $", "123", "45", ",\n\n", " ", " ok", "\t", ".x", "'\u017F"}));
}

TEST(SplitScanner, UnknownPatternsAreNotRecognized) {
  EXPECT_EQ(recognize_pattern(kPatterns[0] + "x"), std::nullopt);
  EXPECT_EQ(recognize_pattern(""), std::nullopt);
}

// The scanners and the regular expressions are two implementations of the same patterns, and the
// translation of \p{..} gives PCRE2 the same Unicode version.
TEST(SplitScanner, EqualsTheRegularExpression) {
  TestRandom rng(5);
  const std::string letters = "'sStTrReEvVmMlLdD \t\n\r\r\n  a1.,-\u00a0";
  for (const std::string& source : kPatterns) {
    const auto regex = Regex::compile(source);
    ASSERT_TRUE(regex) << regex.error().message;
    const KnownPattern pattern = *recognize_pattern(source);
    for (int round = 0; round < rounds(20000); ++round) {
      std::string text;
      for (std::size_t n = rng() % 20; n > 0; --n) {
        if (rng() % 3 == 0) {
          const std::uint32_t code = rng() % (rng() % 2 == 0 ? 0x3100u : 0x110000u);
          if (code < 0xD800 || code > 0xDFFF) utf8::append(code, text);
        } else {
          text += letters[rng() % (letters.size() - 2)];
        }
      }
      ASSERT_EQ(scan(pattern, text), match(*regex, text)) << text;
    }
    std::string text;
    for (std::uint32_t code = 1; code < 0x110000; ++code) {
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      if (kSanitized && code > 0x3100 && code % 8 != 0) continue;
      text += "a";
      utf8::append(code, text);
      text += "1";
      if (text.size() < 2000 && code + 1 < 0x110000) continue;
      ASSERT_EQ(scan(pattern, text), match(*regex, text)) << std::hex << code;
      text.clear();
    }
  }
}

TEST(SplitScanner, ThreeDigits) {
  const auto pattern = recognize_pattern("[0-9][0-9][0-9]");
  ASSERT_TRUE(pattern);
  EXPECT_EQ(scan_match(*pattern, "1234", 0), 3u);
  EXPECT_EQ(scan_match(*pattern, "1234", 2), 2u);
  EXPECT_EQ(scan_match(*pattern, "12x4", 0), 0u);
}

}  // namespace
}  // namespace sluice
