#include "grammar/regex_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace sluice {
namespace {

constexpr int kMaxGroupDepth = 100;

const CodePointSet kDigits = {{'0', '9'}};
const CodePointSet kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointSet kBlanks = {{'\t', '\r'}, {' ', ' '}};

// A character, or a class such as \d.
struct Atom {
  CodePointSet set;
  bool single = false;
};

class RegexReader {
 public:
  RegexReader(std::string_view text, CharacterWriter write, Grammar& grammar)
      : text_(text), write_(write), grammar_(grammar) {}

  Result<ExprId> read(RegexMatch match) {
    std::vector<ExprId> branches;
    while (true) {
      const bool begins = take('^');
      ASSIGN_OR_RETURN(ExprId branch, read_branch(0));
      const bool ends = take('$');
      if (match == RegexMatch::kAnywhere) {
        std::vector<ExprId> parts;
        if (!begins) parts.push_back(any_text());
        parts.push_back(branch);
        if (!ends) parts.push_back(any_text());
        branch = grammar_.sequence(std::move(parts));
      }
      branches.push_back(branch);
      if (!take('|')) break;
    }
    if (!done()) {
      return error(peek() == ')' ? "has ) without ("
                                 : "has an anchor inside; only ^ at the "
                                   "beginning and $ at the end are served");
    }
    return grammar_.choice(std::move(branches));
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(char c) {
    if (done() || peek() != c) return false;
    ++at_;
    return true;
  }
  Error error(std::string_view what) const {
    return invalid_argument(fmt::format("at byte {} of the pattern: {}", at_, what));
  }
  ExprId any_text() { return grammar_.repeat(write_(grammar_, {{0, kLastCodePoint}}), 0, -1); }

  Result<ExprId> read_choice(int depth) {
    std::vector<ExprId> branches;
    do {
      ASSIGN_OR_RETURN(const ExprId branch, read_branch(depth));
      branches.push_back(branch);
    } while (take('|'));
    return grammar_.choice(std::move(branches));
  }

  // Up to | or ) or an anchor, which the caller looks at.
  Result<ExprId> read_branch(int depth) {
    if (depth > kMaxGroupDepth)
      return error(fmt::format("is nested deeper than {}", kMaxGroupDepth));
    std::vector<ExprId> parts;
    while (!done() && peek() != '|' && peek() != ')' && peek() != '$' && peek() != '^') {
      ASSIGN_OR_RETURN(const ExprId item, read_item(depth));
      ASSIGN_OR_RETURN(const ExprId part, read_repeats(item));
      parts.push_back(part);
    }
    return grammar_.sequence(std::move(parts));
  }

  Result<ExprId> read_item(int depth) {
    const char c = peek();
    if (c == '(') return read_group(depth);
    if (c == '*' || c == '+' || c == '?') {
      return error(fmt::format("{} has nothing before it to repeat", c));
    }
    if (c == '[') {
      ASSIGN_OR_RETURN(CodePointSet set, read_class());
      return write_(grammar_, std::move(set));
    }
    if (take('.')) return write_(grammar_, complement({{'\n', '\n'}, {'\r', '\r'}}));
    ASSIGN_OR_RETURN(Atom atom, read_atom());
    return write_(grammar_, std::move(atom.set));
  }

  Result<ExprId> read_group(int depth) {
    ++at_;
    if (take('?')) {
      if (take('P') || (!done() && peek() == '<' && at_ + 1 < text_.size() &&
                        text_[at_ + 1] != '=' && text_[at_ + 1] != '!')) {
        if (!take('<')) return error("only (?P<name>...) is served of (?P");
        while (!done() && peek() != '>') ++at_;
        if (!take('>')) return error("has a group name without >");
      } else if (!take(':')) {
        return error("look-around, flags and conditions in (?...) are not served");
      }
    }
    ASSIGN_OR_RETURN(const ExprId group, read_choice(depth + 1));
    if (!done() && (peek() == '^' || peek() == '$')) {
      return error("has an anchor inside a group; write it outside");
    }
    if (!take(')')) return error("has ( without )");
    return group;
  }

  Result<ExprId> read_repeats(ExprId item) {
    if (done()) return item;
    std::int32_t min = 0;
    std::int32_t max = -1;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (peek() == '{') {
      ASSIGN_OR_RETURN(const bool counted, read_count(min, max));
      if (!counted) return item;
    } else {
      return item;
    }
    if (take('+')) return error("possessive quantifiers are not served");
    take('?');
    if (!done() && (peek() == '*' || peek() == '{')) return error("repeats a repetition");
    return grammar_.repeat(item, min, max);
  }

  // {3}, {3,}, {3,5}, {,5}; other braces are literal, as in Python.
  Result<bool> read_count(std::int32_t& min, std::int32_t& max) {
    const std::size_t begin = at_++;
    const auto low = read_number();
    const bool range = take(',');
    const auto high = range ? read_number() : low;
    if (!take('}') || (!low && !high)) {
      at_ = begin;
      return false;
    }
    min = low.value_or(0);
    max = high.value_or(-1);
    if (min > kMaxRepeatCount || max > kMaxRepeatCount) {
      return error(fmt::format("repeats more than {} times", kMaxRepeatCount));
    }
    if (max >= 0 && max < min) return error("has a count whose end is below its beginning");
    return true;
  }

  std::optional<std::int32_t> read_number() {
    std::optional<std::int32_t> value;
    while (!done() && peek() >= '0' && peek() <= '9') {
      value = std::min(value.value_or(0) * 10 + (text_[at_++] - '0'), kMaxRepeatCount + 1);
    }
    return value;
  }

  Result<CodePointSet> read_class() {
    ++at_;
    const bool negated = take('^');
    CodePointSet set;
    for (bool first = true; done() || peek() != ']' || first; first = false) {
      if (done()) return error("has [ without ]");
      if (peek() == '[' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') {
        return error("POSIX classes are not served; write the characters");
      }
      ASSIGN_OR_RETURN(const Atom atom, read_atom(/*in_class=*/true));
      const bool range =
          atom.single && at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] != ']';
      if (!range) {
        set.insert(set.end(), atom.set.begin(), atom.set.end());
        continue;
      }
      ++at_;
      ASSIGN_OR_RETURN(const Atom last, read_atom(/*in_class=*/true));
      if (!last.single || last.set[0].first < atom.set[0].first) {
        return error("has a range in [] whose end is not a later character");
      }
      set.push_back({atom.set[0].first, last.set[0].first});
    }
    ++at_;
    set = normalized(std::move(set));
    return negated ? complement(set) : set;
  }

  static Atom single(std::uint32_t value) { return {{{value, value}}, true}; }

  Result<Atom> read_atom(bool in_class = false) {
    if (peek() != '\\') {
      const utf8::CodePoint point = utf8::decode(text_, at_);
      at_ += point.bytes;
      return single(point.value);
    }
    ++at_;
    if (done()) return error("ends with a backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'd': return Atom{kDigits};
      case 'D': return Atom{complement(kDigits)};
      case 'w': return Atom{kWordCharacters};
      case 'W': return Atom{complement(kWordCharacters)};
      case 's': return Atom{kBlanks};
      case 'S': return Atom{complement(kBlanks)};
      case 'n': return single('\n');
      case 't': return single('\t');
      case 'r': return single('\r');
      case 'f': return single('\f');
      case 'v': return single('\v');
      case '0': return single(0);
      case 'x': return read_code(2);
      case 'u': return read_code(4);
      case 'U': return read_code(8);
      case 'b':
        if (in_class) return single('\b');
        break;
      default: break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter) return error(fmt::format("\\{} is not served", c));
    --at_;
    const utf8::CodePoint point = utf8::decode(text_, at_);
    at_ += point.bytes;
    return single(point.value);
  }

  Result<Atom> read_code(int digits) {
    std::int64_t value = -1;
    if (digits == 4 && take('{')) {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end - at_ > 6 || end == at_) {
        return error("has a code point without }");
      }
      value = read_hex(text_, at_, static_cast<int>(end - at_));
      ++at_;
    } else {
      value = read_hex(text_, at_, digits);
    }
    if (value < 0 || value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF)) {
      return error("has an escape that names no character");
    }
    return single(static_cast<std::uint32_t>(value));
  }

  std::string_view text_;
  CharacterWriter write_;
  Grammar& grammar_;
  std::size_t at_ = 0;
};

}  // namespace

std::int64_t read_hex(std::string_view text, std::size_t& at, int digits) {
  std::int64_t value = 0;
  if (text.size() - at < static_cast<std::size_t>(digits)) return -1;
  for (int i = 0; i < digits; ++i) {
    const char c = text[at + static_cast<std::size_t>(i)];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  at += static_cast<std::size_t>(digits);
  return value;
}

Result<ExprId> parse_regex(std::string_view pattern, RegexMatch match, CharacterWriter write,
                           Grammar& grammar) {
  if (pattern.size() > kMaxRegexBytes) {
    return invalid_argument(fmt::format("the pattern has {} bytes; at most {} are served",
                                        pattern.size(), kMaxRegexBytes));
  }
  if (utf8::find_invalid(pattern)) return invalid_argument("the pattern is not valid UTF-8");
  return RegexReader(pattern, write, grammar).read(match);
}

Result<Grammar> regex_grammar(std::string_view pattern) {
  Grammar grammar;
  const auto write = [](Grammar& g, CodePointSet set) { return g.one_of(std::move(set)); };
  ASSIGN_OR_RETURN(const ExprId body, parse_regex(pattern, RegexMatch::kWhole, write, grammar));
  grammar.set_start(grammar.add_rule("root", body));
  return grammar;
}

}  // namespace sluice
