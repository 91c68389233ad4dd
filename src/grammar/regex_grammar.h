// Parses a regular expression into a Grammar. The syntax is the common part of Python's, PCRE's and
// ECMAScript's: literals, classes, groups, | * + ? {m,n}, \d \w \s and their complements (ASCII, as
// in ECMAScript), \xHH \uHHHH \u{...}, ^ and $ at the ends. A lazy quantifier matches the same
// texts as a greedy one. Everything that a finite automaton cannot express is refused by name.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "grammar/grammar.h"

namespace sluice {

inline constexpr std::size_t kMaxRegexBytes = std::size_t{64} << 10;
inline constexpr std::int32_t kMaxRepeatCount = 100'000;

enum class RegexMatch : std::uint8_t {
  kWhole,     // the whole text; ^ and $ say so again
  kAnywhere,  // a part of the text, as JSON Schema's `pattern`; ^ and $ bind it to the ends
};

// The expression for one character of a set, as the text writes it: JSON strings escape some.
using CharacterWriter = FunctionRef<ExprId(Grammar& grammar, CodePointSet set)>;

// Errors: kInvalidArgument, naming the place in the pattern.
Result<ExprId> parse_regex(std::string_view pattern, RegexMatch match, CharacterWriter write,
                           Grammar& grammar);
// A grammar of the whole text.
Result<Grammar> regex_grammar(std::string_view pattern);

// Shared with other parsers: the hexadecimal digits at text[at], which moves behind them.
// Returns -1 if there are not `digits` of them.
std::int64_t read_hex(std::string_view text, std::size_t& at, int digits);

}  // namespace sluice
