#include "tokenizer/split_scanner.h"

#include "base/utf8.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {
namespace {

using unicode::kLetter;
using unicode::kNumber;
using unicode::kSpace;

constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWordsDigit1Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWordsDigits3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  struct Char {
    std::uint8_t mask = 0;
    std::size_t end = 0;
  };
  Char at(std::size_t position) const {
    const utf8::CodePoint c = utf8::decode(text_, position);
    return {classes_.mask(c.value), position + c.bytes};
  }
  bool ends(std::size_t position) const { return position >= text_.size(); }
  char byte(std::size_t position) const { return ends(position) ? '\0' : text_[position]; }
  bool is(std::size_t position, std::uint8_t wanted) const {
    return !ends(position) && (at(position).mask & wanted) != 0;
  }

  // The end of the run of characters that have one of the classes.
  std::size_t run(std::size_t position, std::uint8_t wanted) const {
    while (!ends(position)) {
      const Char c = at(position);
      if ((c.mask & wanted) == 0) break;
      position = c.end;
    }
    return position;
  }
  std::size_t run_of_others(std::size_t position) const {
    while (!ends(position)) {
      const Char c = at(position);
      if ((c.mask & (kLetter | kNumber | kSpace)) != 0) break;
      position = c.end;
    }
    return position;
  }

  // \s+(?!\S)|\s+ : a run of spaces, without its last one when more text follows.
  std::size_t spaces(std::size_t position) const {
    const std::size_t end = run(position, kSpace);
    if (ends(end)) return end;
    const std::size_t last = utf8::previous(text_, end);
    return last > position ? last : end;
  }

  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  const unicode::Classes& classes_ = unicode::classes();
};

// The length of 's, 't, 're, 've, 'm, 'll, 'd at an apostrophe, or 0. With kFolded, letter case is
// folded; U+017F (two bytes) then counts as s.
enum class LetterCase { kExact, kFolded };
std::size_t contraction(const Scanner& scanner, std::size_t at, LetterCase letter_case) {
  const auto letter = [&](std::size_t position) {
    const char c = scanner.byte(position);
    const bool fold = letter_case == LetterCase::kFolded && c >= 'A' && c <= 'Z';
    return fold ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1);
  const char second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (letter_case == LetterCase::kFolded && first == '\xC5' && second == '\xBF') return 3;
  return 0;
}

std::size_t scan_gpt2(const Scanner& scanner, std::size_t at) {
  if (scanner.byte(at) == '\'') {
    const std::size_t length = contraction(scanner, at, LetterCase::kExact);
    if (length > 0) return at + length;
  }
  const std::size_t body = scanner.byte(at) == ' ' ? at + 1 : at;
  if (!scanner.ends(body)) {
    const std::uint8_t mask = scanner.at(body).mask;
    if ((mask & kLetter) != 0) return scanner.run(body, kLetter);
    if ((mask & kNumber) != 0) return scanner.run(body, kNumber);
    if ((mask & kSpace) == 0) return scanner.run_of_others(body);
  }
  return scanner.spaces(at);
}

// \s*[\r\n]+ : the end of the last line break in a run of spaces; `at` without a line break.
std::size_t line_ends(const Scanner& scanner, std::size_t at) {
  std::size_t end = at;
  for (std::size_t i = at; !scanner.ends(i);) {
    const Scanner::Char c = scanner.at(i);
    if ((c.mask & kSpace) == 0) break;
    const char b = scanner.byte(i);
    i = c.end;
    if (b == '\r' || b == '\n') end = i;
  }
  return end;
}

std::size_t scan_words(const Scanner& scanner, std::size_t at, int max_digits) {
  const char lead = scanner.byte(at);
  if (lead == '\'') {
    const std::size_t length = contraction(scanner, at, LetterCase::kFolded);
    if (length > 0) return at + length;
  }
  const Scanner::Char first = scanner.at(at);
  if ((first.mask & kLetter) != 0) return scanner.run(at, kLetter);
  if ((first.mask & kNumber) != 0) {
    std::size_t end = first.end;
    for (int i = 1; i < max_digits && scanner.is(end, kNumber); ++i) end = scanner.at(end).end;
    return end;
  }
  if (lead != '\r' && lead != '\n' && scanner.is(first.end, kLetter)) {
    return scanner.run(first.end, kLetter);
  }
  const std::size_t body = lead == ' ' ? at + 1 : at;
  if (!scanner.ends(body) && (scanner.at(body).mask & (kLetter | kNumber | kSpace)) == 0) {
    std::size_t end = scanner.run_of_others(body);
    while (scanner.byte(end) == '\r' || scanner.byte(end) == '\n') ++end;
    return end;
  }
  const std::size_t lines = line_ends(scanner, at);
  return lines > at ? lines : scanner.spaces(at);
}

std::size_t scan_three_digits(std::string_view text, std::size_t at) {
  if (at + 3 > text.size()) return at;
  for (std::size_t i = at; i < at + 3; ++i) {
    if (text[i] < '0' || text[i] > '9') return at;
  }
  return at + 3;
}

}  // namespace

std::optional<KnownPattern> recognize_pattern(std::string_view regex) {
  if (regex == kGpt2Regex) return KnownPattern::kGpt2;
  if (regex == kWordsDigit1Regex) return KnownPattern::kWordsDigit1;
  if (regex == kWordsDigits3Regex) return KnownPattern::kWordsDigits3;
  if (regex == "[0-9][0-9][0-9]") return KnownPattern::kThreeDigits;
  return std::nullopt;
}

std::size_t scan_match(KnownPattern pattern, std::string_view text, std::size_t at) {
  const Scanner scanner(text);
  switch (pattern) {
    case KnownPattern::kGpt2: return scan_gpt2(scanner, at);
    case KnownPattern::kWordsDigit1: return scan_words(scanner, at, 1);
    case KnownPattern::kWordsDigits3: return scan_words(scanner, at, 3);
    case KnownPattern::kThreeDigits: return scan_three_digits(text, at);
  }
  return at;
}

}  // namespace sluice
