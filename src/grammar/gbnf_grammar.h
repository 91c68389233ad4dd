// Parses a grammar in GBNF, the format of llama.cpp, into a Grammar. The rule `root` is the start.
//   root ::= "yes" | "no" [0-9]{1,3} item*   # comment
// Left recursion is refused by GrammarAutomaton::compile().
// Pure function; any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/grammar.h"

namespace sluice {

inline constexpr std::size_t kMaxGbnfBytes = std::size_t{1} << 20;

// Errors: kInvalidArgument, naming the line.
Result<Grammar> gbnf_grammar(std::string_view text);

}  // namespace sluice
