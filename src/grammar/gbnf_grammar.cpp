#include "grammar/gbnf_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "grammar/regex_grammar.h"

namespace sluice {
namespace {

constexpr int kMaxNesting = 100;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text) {}

  Result<Grammar> read() {
    skip_space(/*newlines=*/true);
    while (!done()) {
      RETURN_IF_ERROR(read_rule());
      skip_space(/*newlines=*/true);
    }
    const auto root = rules_.find("root");
    if (root == rules_.end() || grammar_.rules()[static_cast<std::size_t>(root->second)].body < 0) {
      return invalid_argument("the grammar has no rule root; add root ::= ...");
    }
    grammar_.set_start(root->second);
    return std::move(grammar_);
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
    const auto line = 1 + std::ranges::count(text_.substr(0, at_), '\n');
    return invalid_argument(fmt::format("line {} of the grammar: {}", line, what));
  }

  void skip_space(bool newlines) {
    while (!done()) {
      const char c = peek();
      if (c == '#') {
        while (!done() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string read_name() {
    const std::size_t begin = at_;
    while (!done() && is_name(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  RuleId rule(const std::string& name) {
    const auto [at, added] = rules_.try_emplace(name, -1);
    if (added) at->second = grammar_.add_rule(name);
    return at->second;
  }

  Status read_rule() {
    const std::string name = read_name();
    if (name.empty()) return error("expected the name of a rule");
    skip_space(false);
    if (text_.substr(at_, 3) != "::=") return error(fmt::format("expected ::= after {}", name));
    at_ += 3;
    skip_space(true);
    const RuleId id = rule(name);
    if (grammar_.rules()[static_cast<std::size_t>(id)].body >= 0) {
      return error(fmt::format("the rule {} is defined twice", name));
    }
    ASSIGN_OR_RETURN(const ExprId body, read_choice(0));
    grammar_.define(id, body);
    if (!done() && peek() != '\n' && peek() != '\r') {
      return error(fmt::format("unexpected {}", peek()));
    }
    return {};
  }

  // Inside parentheses a line may end anywhere; outside only after |.
  Result<ExprId> read_choice(int depth) {
    if (depth > kMaxNesting) return error(fmt::format("is nested deeper than {}", kMaxNesting));
    std::vector<ExprId> branches;
    do {
      skip_space(true);
      ASSIGN_OR_RETURN(const ExprId branch, read_sequence(depth));
      branches.push_back(branch);
    } while (take('|'));
    return grammar_.choice(std::move(branches));
  }

  Result<ExprId> read_sequence(int depth) {
    std::vector<ExprId> parts;
    while (true) {
      skip_space(depth > 0);
      if (done() || peek() == '|' || peek() == ')' || peek() == '\n' || peek() == '\r') break;
      ASSIGN_OR_RETURN(ExprId item, read_item(depth));
      bool repeated = true;
      while (repeated) {
        ASSIGN_OR_RETURN(repeated, read_repeat(item));
      }
      parts.push_back(item);
    }
    return grammar_.sequence(std::move(parts));
  }

  Result<ExprId> read_item(int depth) {
    if (take('(')) {
      ASSIGN_OR_RETURN(const ExprId group, read_choice(depth + 1));
      if (!take(')')) return error("expected )");
      return group;
    }
    if (take('"')) return read_literal();
    if (take('[')) return read_class();
    if (take('.')) return grammar_.any_character();
    if (is_name(peek())) return grammar_.call(rule(read_name()));
    return error(fmt::format("unexpected {}", peek()));
  }

  Result<bool> read_repeat(ExprId& item) {
    std::int32_t min = 0;
    std::int32_t max = -1;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (take('{')) {
      ASSIGN_OR_RETURN(min, read_count(0));
      max = min;
      skip_space(false);
      if (take(',')) {
        ASSIGN_OR_RETURN(max, read_count(-1));
      }
      skip_space(false);
      if (!take('}')) return error("expected } after a count");
      if (max >= 0 && max < min) return error("has a count whose end is below its beginning");
    } else {
      return false;
    }
    item = grammar_.repeat(item, min, max);
    return true;
  }

  Result<std::int32_t> read_count(std::int32_t missing) {
    skip_space(false);
    if (done() || peek() < '0' || peek() > '9') {
      if (missing < 0) return missing;
      return error("expected a count");
    }
    std::int32_t value = 0;
    while (!done() && peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > kMaxRepeatCount) {
        return error(fmt::format("repeats more than {} times", kMaxRepeatCount));
      }
    }
    return value;
  }

  Result<ExprId> read_literal() {
    std::string bytes;
    while (!take('"')) {
      if (done() || peek() == '\n') return error("a text has no closing \"");
      ASSIGN_OR_RETURN(const std::uint32_t value, read_character());
      utf8::append(value, bytes);
    }
    return grammar_.literal(bytes);
  }

  Result<ExprId> read_class() {
    const bool negated = take('^');
    CodePointSet set;
    while (!take(']')) {
      if (done() || peek() == '\n') return error("[ has no closing ]");
      ASSIGN_OR_RETURN(const std::uint32_t first, read_character());
      std::uint32_t last = first;
      if (at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] != ']') {
        ++at_;
        ASSIGN_OR_RETURN(last, read_character());
        if (last < first) return error("has a range in [] whose end is below its beginning");
      }
      set.push_back({first, last});
    }
    return grammar_.one_of(negated ? complement(set) : set);
  }

  Result<std::uint32_t> read_character() {
    if (!take('\\')) {
      const utf8::CodePoint point = utf8::decode(text_, at_);
      at_ += point.bytes;
      return point.value;
    }
    if (done()) return error("ends with a backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return read_code(2);
      case 'u': return read_code(4);
      case 'U': return read_code(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/': return static_cast<std::uint32_t>(c);
      default: return error(fmt::format("\\{} is not an escape of GBNF", c));
    }
  }

  Result<std::uint32_t> read_code(int digits) {
    const std::int64_t value = read_hex(text_, at_, digits);
    if (value < 0 || value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF)) {
      return error("has an escape that names no character");
    }
    return static_cast<std::uint32_t>(value);
  }

  std::string_view text_;
  Grammar grammar_;
  std::map<std::string, RuleId> rules_;
  std::size_t at_ = 0;
};

}  // namespace

Result<Grammar> gbnf_grammar(std::string_view text) {
  if (text.size() > kMaxGbnfBytes) {
    return invalid_argument(
        fmt::format("the grammar has {} bytes; at most {} are served", text.size(), kMaxGbnfBytes));
  }
  if (utf8::find_invalid(text)) return invalid_argument("the grammar is not valid UTF-8");
  return GbnfReader(text).read();
}

}  // namespace sluice
