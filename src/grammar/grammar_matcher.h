// GrammarMatcher: where one sequence stands in its grammar. It says which tokens may come next and
// reads the token that was chosen.
// Owner: a slot of the sampler. Threads: one at a time. Allocation: fill() and accept() allocate
// while the texts bring new states; memory is bounded except for the depth of nested calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "grammar/grammar_stacks.h"
#include "grammar/token_grammar.h"

namespace sluice {

class GrammarMatcher {
 public:
  // Takes a grammar, at its start; null: none.
  void assign(TokenGrammarPtr grammar);
  bool active() const { return grammar_ != nullptr; }

  // Sets the bits of all tokens that may come next. Words beyond the vocabulary stay zero.
  // REQUIRES: active(), a word for each 32 ids.
  void fill(std::span<std::uint32_t> mask);
  // Whether the text so far is a whole text of the grammar. REQUIRES: active().
  bool can_end() const;
  // Reads a token. Returns whether the grammar allows it; if not, no token is allowed any more.
  // REQUIRES: active().
  bool accept(TokenId token);
  // Whether a text could be read in too many ways, so that accept() has refused a token for that.
  bool overflowed() const { return stacks_ && stacks_->overflowed(); }

 private:
  static constexpr std::size_t kMaxStacks = 2048;

  void trim();

  TokenGrammarPtr grammar_;
  std::optional<GrammarStacks> stacks_;
  GrammarStacks::SetId set_ = GrammarStacks::kDead;
  std::size_t trim_at_ = kMaxStacks;          // the size at which unused stacks are dropped
  std::vector<GrammarStacks::SetId> levels_;  // scratch
  StateMask spare_;
};

}  // namespace sluice
