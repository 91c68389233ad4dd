#include "grammar/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace sluice {
namespace {

constexpr std::int32_t kMaxFraction = 17;

const CodePointSet kPlainCharacters =
    normalized({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCodePoint}});

// Characters that a string cannot hold as they are.
std::string escape_of(std::uint32_t c) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", c);
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      out += escape_of(byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::int64_t power_of_ten(std::size_t digits) {
  std::int64_t power = 1;
  for (std::size_t i = 0; i < digits; ++i) power *= 10;
  return power;
}

}  // namespace

ExprId JsonGrammar::comma() {
  return grammar_.sequence({grammar_.literal(","), grammar_.optional(grammar_.literal(" "))});
}

ExprId JsonGrammar::colon() {
  return grammar_.sequence({grammar_.literal(":"), grammar_.optional(grammar_.literal(" "))});
}

ExprId JsonGrammar::quoted(ExprId content) {
  return grammar_.sequence({grammar_.literal("\""), content, grammar_.literal("\"")});
}

ExprId JsonGrammar::braced(ExprId members) {
  return grammar_.sequence({grammar_.literal("{"), members, grammar_.literal("}")});
}

ExprId JsonGrammar::text(std::string_view text) {
  return grammar_.literal("\"" + escaped(text) + "\"");
}

ExprId JsonGrammar::character(CodePointSet set) {
  set = normalized(std::move(set));
  std::vector<ExprId> ways;
  if (CodePointSet plain = intersection(set, kPlainCharacters); !plain.empty()) {
    ways.push_back(grammar_.one_of(std::move(plain)));
  }
  for (const CodePointRange& range : intersection(set, complement(kPlainCharacters))) {
    for (std::uint32_t c = range.first; c <= range.last; ++c) {
      ways.push_back(grammar_.literal(escape_of(c)));
    }
  }
  return grammar_.choice(std::move(ways));
}

ExprId JsonGrammar::any_character() {
  const auto hex = [&](std::int32_t count) {
    return grammar_.repeat(grammar_.one_of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}), count, count);
  };
  const auto sequence = [&](CodePointSet first, CodePointSet second) {
    return grammar_.sequence({grammar_.literal("\\u"), grammar_.one_of(std::move(first)),
                              grammar_.one_of(std::move(second)), hex(2)});
  };
  const CodePointSet all = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  const CodePointSet d = {{'D', 'D'}, {'d', 'd'}};
  return grammar_.choice(
      {grammar_.one_of(kPlainCharacters),
       grammar_.sequence({grammar_.literal("\\"), grammar_.one_of({{'"', '"'},
                                                                   {'\\', '\\'},
                                                                   {'/', '/'},
                                                                   {'b', 'b'},
                                                                   {'f', 'f'},
                                                                   {'n', 'n'},
                                                                   {'r', 'r'},
                                                                   {'t', 't'}})}),
       sequence({{'0', '9'}, {'A', 'C'}, {'a', 'c'}, {'E', 'F'}, {'e', 'f'}}, all),
       sequence(d, {{'0', '7'}}),
       // The two halves of a character above U+FFFF; one half alone is no text.
       grammar_.sequence({sequence(d, {{'8', '9'}, {'A', 'B'}, {'a', 'b'}}),
                          sequence(d, {{'C', 'F'}, {'c', 'f'}})})});
}

ExprId JsonGrammar::any_string() {
  if (string_ < 0) {
    string_ = grammar_.add_rule("JSON string", quoted(grammar_.repeat(any_character(), 0, -1)));
  }
  return grammar_.call(string_);
}

ExprId JsonGrammar::digits(std::int32_t min, std::int32_t max) {
  return grammar_.repeat(grammar_.one_of({{'0', '9'}}), min, max);
}

ExprId JsonGrammar::any_integer() {
  if (integer_ < 0) {
    const ExprId natural = grammar_.choice(
        {grammar_.literal("0"),
         grammar_.sequence({grammar_.one_of({{'1', '9'}}), digits(0, kMaxJsonDigits - 1)})});
    integer_ = grammar_.add_rule(
        "JSON integer", grammar_.sequence({grammar_.optional(grammar_.literal("-")), natural}));
  }
  return grammar_.call(integer_);
}

ExprId JsonGrammar::exponent() {
  return grammar_.optional(grammar_.sequence(
      {grammar_.one_of({{'E', 'E'}, {'e', 'e'}}),
       grammar_.optional(grammar_.one_of({{'+', '+'}, {'-', '-'}})), digits(1, 2)}));
}

ExprId JsonGrammar::any_number() {
  if (number_ < 0) {
    const ExprId fraction =
        grammar_.optional(grammar_.sequence({grammar_.literal("."), digits(1, kMaxFraction)}));
    number_ =
        grammar_.add_rule("JSON number", grammar_.sequence({any_integer(), fraction, exponent()}));
  }
  return grammar_.call(number_);
}

ExprId JsonGrammar::any_object() {
  if (object_ < 0) {
    object_ = grammar_.add_rule("JSON object");
    grammar_.define(object_, object(member(any_string(), any_value()), 0, -1));
  }
  return grammar_.call(object_);
}

ExprId JsonGrammar::any_array() {
  if (array_ < 0) {
    array_ = grammar_.add_rule("JSON array");
    grammar_.define(array_, array(any_value(), 0, -1));
  }
  return grammar_.call(array_);
}

ExprId JsonGrammar::any_value() {
  if (value_ < 0) {
    value_ = grammar_.add_rule("JSON value");
    grammar_.define(value_, grammar_.choice({any_object(), any_array(), any_string(), any_number(),
                                             grammar_.literal("true"), grammar_.literal("false"),
                                             grammar_.literal("null")}));
  }
  return grammar_.call(value_);
}

ExprId JsonGrammar::repeated(ExprId item, std::int32_t min, std::int32_t max) {
  if (max == 0) return grammar_.empty();
  // The item stands in two places. As a rule it is compiled once.
  const ExprId call = grammar_.call(grammar_.add_rule("JSON item", item));
  const ExprId more = grammar_.repeat(grammar_.sequence({comma(), call}), std::max(min - 1, 0),
                                      max < 0 ? -1 : max - 1);
  const ExprId all = grammar_.sequence({call, more});
  return min == 0 ? grammar_.optional(all) : all;
}

ExprId JsonGrammar::array(ExprId item, std::int32_t min, std::int32_t max) {
  return grammar_.sequence(
      {grammar_.literal("["), repeated(item, min, max), grammar_.literal("]")});
}

ExprId JsonGrammar::object(ExprId member, std::int32_t min, std::int32_t max) {
  return braced(repeated(member, min, max));
}

ExprId JsonGrammar::constant(const JsonValue& value) {
  if (const auto* flag = value.boolean()) return grammar_.literal(*flag ? "true" : "false");
  if (const auto* integer = value.integer()) return grammar_.literal(std::to_string(*integer));
  if (const auto* decimal = value.decimal()) return grammar_.literal(decimal->text);
  if (const auto* string = value.string()) return text(*string);
  if (value.is_null()) return grammar_.literal("null");
  std::vector<ExprId> parts;
  if (const auto* items = value.array()) {
    parts.push_back(grammar_.literal("["));
    for (const JsonValue& item : *items) {
      if (parts.size() > 1) parts.push_back(comma());
      parts.push_back(constant(item));
    }
    parts.push_back(grammar_.literal("]"));
    return grammar_.sequence(std::move(parts));
  }
  parts.push_back(grammar_.literal("{"));
  for (const JsonMember& item : *value.object()) {
    if (parts.size() > 1) parts.push_back(comma());
    parts.push_back(member(text(item.name), constant(item.value)));
  }
  parts.push_back(grammar_.literal("}"));
  return grammar_.sequence(std::move(parts));
}

ExprId JsonGrammar::integer(std::int64_t low, std::int64_t high) {
  std::vector<ExprId> ways;
  if (low < 0) {
    ways.push_back(grammar_.sequence(
        {grammar_.literal("-"), natural(std::max<std::int64_t>(1, -high), -low)}));
  }
  if (high >= 0) ways.push_back(natural(std::max<std::int64_t>(0, low), high));
  return grammar_.choice(std::move(ways));
}

// Numbers of one length at a time.
ExprId JsonGrammar::natural(std::int64_t low, std::int64_t high) {
  std::vector<ExprId> ways;
  while (low <= high) {
    const std::string first = std::to_string(low);
    const std::int64_t last = std::min(high, power_of_ten(first.size()) - 1);
    ways.push_back(same_length(first, std::to_string(last)));
    low = last + 1;
  }
  return grammar_.choice(std::move(ways));
}

ExprId JsonGrammar::same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return grammar_.empty();
  const auto all = [](std::string_view text, char c) {
    return text.find_first_not_of(c) == std::string_view::npos;
  };
  if (all(low, '0') && all(high, '9')) {
    const auto size = static_cast<std::int32_t>(low.size());
    return digits(size, size);
  }
  const auto digit = [](char c) { return static_cast<std::uint32_t>(c); };
  const auto rest = static_cast<std::int32_t>(low.size()) - 1;
  if (low[0] == high[0]) {
    return grammar_.sequence(
        {grammar_.literal(low.substr(0, 1)), same_length(low.substr(1), high.substr(1))});
  }
  std::vector<ExprId> ways = {
      grammar_.sequence({grammar_.literal(low.substr(0, 1)), at_least(low.substr(1))}),
      grammar_.sequence({grammar_.literal(high.substr(0, 1)), at_most(high.substr(1))})};
  if (low[0] + 1 < high[0]) {
    ways.push_back(grammar_.sequence(
        {grammar_.one_of({{digit(low[0]) + 1, digit(high[0]) - 1}}), digits(rest, rest)}));
  }
  return grammar_.choice(std::move(ways));
}

ExprId JsonGrammar::at_least(std::string_view low) {
  return same_length(low, std::string(low.size(), '9'));
}

ExprId JsonGrammar::at_most(std::string_view high) {
  return same_length(std::string(high.size(), '0'), high);
}

ExprId JsonGrammar::other_text(const std::vector<std::string_view>& texts) {
  return quoted(other_rest(texts));
}

// The texts that begin alike are one branch; any other next character leaves them all.
ExprId JsonGrammar::other_rest(const std::vector<std::string_view>& texts) {
  const ExprId anything = grammar_.repeat(character({{0, kLastCodePoint}}), 0, -1);
  std::map<std::uint32_t, std::vector<std::string_view>> by_first;
  bool ends_here = false;
  for (const std::string_view text : texts) {
    if (text.empty()) {
      ends_here = true;
      continue;
    }
    const utf8::CodePoint first = utf8::decode(text, 0);
    by_first[first.value].push_back(text.substr(first.bytes));
  }
  if (by_first.empty()) {
    if (!ends_here) return anything;
    return grammar_.repeat(character({{0, kLastCodePoint}}), 1, -1);
  }
  std::vector<ExprId> ways;
  CodePointSet firsts;
  for (const auto& [first, rests] : by_first) {
    firsts.push_back({first, first});
    ways.push_back(grammar_.sequence({character({{first, first}}), other_rest(rests)}));
  }
  ways.push_back(grammar_.sequence({character(complement(firsts)), anything}));
  if (!ends_here) ways.push_back(grammar_.empty());
  return grammar_.choice(std::move(ways));
}

}  // namespace sluice
