// GrammarAutomaton: a compiled grammar: a pushdown automaton over bytes. Each rule is a
// deterministic automaton whose transitions are classes of bytes and calls of rules. Several calls,
// or calls and bytes, may leave one state; GrammarStacks follows all of them at once.
//
// Every state can reach the end of its rule, so a text that the automaton accepts so far is always
// the beginning of a text of the grammar. No rule calls itself before it reads a byte (left
// recursion is refused).
// Immutable once compiled: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "grammar/grammar.h"

namespace sluice {

// The largest automaton that is built.
struct GrammarLimits {
  std::size_t nfa_states = 400'000;
  std::size_t states = 60'000;
  std::size_t table_bytes = std::size_t{48} << 20;
  // Members of all state sets that are looked at while rules become deterministic.
  std::size_t work = 20'000'000;
};

struct RuleCall {
  std::int32_t callee = 0;   // the first state of the called rule
  std::int32_t resume = -1;  // the state behind the call; -1: the end of the calling rule
};

class GrammarAutomaton {
 public:
  static constexpr std::int32_t kDead = -1;

  // Errors: kInvalidArgument: left recursion, a rule that is not defined or matches nothing (by
  // name), or a limit; the error of `stop`.
  static Result<GrammarAutomaton> compile(const Grammar& grammar, const StopCheck& stop = {},
                                          const GrammarLimits& limits = {});

  std::int32_t start() const { return start_; }
  std::size_t num_states() const { return final_.size(); }
  int num_classes() const { return num_classes_; }
  int class_of(std::uint8_t byte) const { return class_of_[byte]; }
  // kDead or the next state of the same rule.
  std::int32_t next(std::int32_t state, int byte_class) const {
    return next_[static_cast<std::size_t>(state) * static_cast<std::size_t>(num_classes_) +
                 static_cast<std::size_t>(byte_class)];
  }
  // Whether the rule may end here.
  bool final(std::int32_t state) const { return final_[static_cast<std::size_t>(state)] != 0; }
  bool reads_bytes(std::int32_t state) const {
    return reads_bytes_[static_cast<std::size_t>(state)] != 0;
  }
  std::span<const RuleCall> calls(std::int32_t state) const {
    const auto at = static_cast<std::size_t>(state);
    return std::span(calls_).subspan(first_call_[at], first_call_[at + 1] - first_call_[at]);
  }
  // The states of rule i are those from its first state to the next rule's first state.
  std::span<const std::int32_t> rule_starts() const { return rule_starts_; }
  std::size_t num_calls() const { return calls_.size(); }
  std::size_t bytes() const;

 private:
  friend class AutomatonBuilder;
  friend class GrammarImageReader;
  GrammarAutomaton() = default;

  std::int32_t start_ = 0;
  int num_classes_ = 0;
  std::array<std::uint8_t, 256> class_of_{};
  std::vector<std::int32_t> next_;  // [state][class]
  std::vector<std::uint8_t> final_;
  std::vector<std::uint8_t> reads_bytes_;
  std::vector<std::uint32_t> first_call_;  // by state, and one more
  std::vector<RuleCall> calls_;
  std::vector<std::int32_t> rule_starts_;
};

}  // namespace sluice
