// Nfa: a rule of a grammar as a nondeterministic automaton, the first step of its compilation.
// Plain data; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/utf8_ranges.h"

namespace sluice {

struct NfaEdge {
  enum class Kind : std::uint8_t { kEmpty, kBytes, kCall };
  Kind kind = Kind::kEmpty;
  ByteRange bytes;
  RuleId rule = -1;
  std::int32_t to = 0;
};

struct Nfa {
  std::vector<std::vector<NfaEdge>> states;
  std::int32_t start = 0;
  std::int32_t end = 0;
};

// Errors: kInvalidArgument: more than `max_states` states.
Result<Nfa> make_nfa(const Grammar& grammar, RuleId rule, std::size_t max_states);

}  // namespace sluice
