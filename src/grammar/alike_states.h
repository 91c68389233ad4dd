// AlikeState: another state of the same rule that reads all short texts with the same outcome. The
// states of a string with `maxLength` differ only in texts that are longer than what is left, so
// the mask of one is that of its neighbour except for long tokens (extend_state_mask()).
//
// The partition of states is refined as Moore's algorithm for minimal automata does, one byte a
// round; only states whose next states changed are looked at again. The round in which a state
// leaves a class says how long the texts are on which it still agrees with the class.
// Pure function; any thread. Time: linear in the table and in the states that change, and bounded.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "grammar/grammar_automaton.h"

namespace sluice {

struct AlikeState {
  static constexpr std::int32_t kAllTexts = std::numeric_limits<std::int32_t>::max();
  std::int32_t state = -1;  // -1: none is known
  std::int32_t bytes = 0;   // texts of at most so many bytes have the same outcome
};

// By state. The links have no cycle.
std::vector<AlikeState> find_alike_states(const GrammarAutomaton& automaton);

}  // namespace sluice
