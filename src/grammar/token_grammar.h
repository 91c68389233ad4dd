// TokenGrammar: a grammar compiled for the vocabulary of a model: the automaton and the token masks
// of its states. A worker makes it; sequences share it, each with its own GrammarMatcher.
//
// Compiling it computes the masks of all states, up to a bound of work; most of them from the mask
// of an alike state. The masks of further states are computed when a sequence first needs them, a
// millisecond each at most, on that thread.
// Immutable except for those masks and the image: any thread. Memory: kMaxMaskBytes in masks at
// most; beyond it they are computed each time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop_check.h"
#include "grammar/alike_states.h"
#include "grammar/grammar.h"
#include "grammar/grammar_automaton.h"
#include "grammar/state_masks.h"
#include "grammar/token_trie.h"

namespace sluice {

// The parts that the grammars of one model share.
struct GrammarVocabulary {
  explicit GrammarVocabulary(TokenTrie tokens) : trie(std::move(tokens)) {}
  TokenTrie trie;
  RuleMaskCache rules;
};

// Shared by the model's compiler of grammars and by each grammar: neither outlives the other.
using GrammarVocabularyPtr = std::shared_ptr<GrammarVocabulary>;

class TokenGrammar;
// Shared by the cache of grammars and by all sequences that keep to the grammar.
using TokenGrammarPtr = std::shared_ptr<const TokenGrammar>;

class TokenGrammar {
 public:
  static constexpr std::size_t kMaxMaskBytes = std::size_t{64} << 20;

  // Errors: those of GrammarAutomaton::compile().
  static Result<TokenGrammarPtr> compile(const Grammar& grammar, GrammarVocabularyPtr vocabulary,
                                         const StopCheck& stop = {});
  // A grammar that was compiled elsewhere; no mask is made yet (grammar_image.h).
  static TokenGrammarPtr restore(GrammarAutomaton automaton, std::vector<AlikeState> alike,
                                 GrammarVocabularyPtr vocabulary);

  const GrammarAutomaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return vocabulary_->trie; }

  const AlikeState& alike(std::int32_t state) const {
    return alike_[static_cast<std::size_t>(state)];
  }

  // The mask of a state, which may be made now. `spare` holds masks that are not kept.
  const StateMask& mask(std::int32_t state, StateMask& spare) const;
  // Its bytes (grammar_image.h), made at the first call, which takes up to tens of milliseconds for
  // a large grammar, and kept.
  const std::vector<std::byte>& image() const;
  // Masks that were made while sequences waited for them.
  std::size_t late_masks() const { return late_masks_.load(std::memory_order_relaxed); }

 private:
  struct Place {
    std::uint32_t rule = 0;
    std::uint32_t state = 0;  // within the rule
  };

  TokenGrammar(GrammarAutomaton automaton, GrammarVocabularyPtr vocabulary);
  void share_rules();
  Status make_masks(const StopCheck& stop);
  // The mask of a state that has none yet.
  const StateMask& make_mask(std::int32_t state, GrammarStacks& stacks, std::size_t& visits,
                             StateMask& spare) const;
  RuleMasks& rule_of(std::int32_t state) const {
    return *rules_[places_[static_cast<std::size_t>(state)].rule];
  }

  GrammarAutomaton automaton_;
  GrammarVocabularyPtr vocabulary_;
  std::vector<RuleMasksPtr> rules_;
  std::vector<Place> places_;      // by state
  std::vector<AlikeState> alike_;  // by state

  mutable std::once_flag image_once_;
  mutable std::vector<std::byte> image_;
  mutable std::mutex late_mutex_;
  mutable GrammarStacks late_stacks_;
  mutable std::atomic<std::size_t> mask_bytes_ = 0;
  mutable std::atomic<std::size_t> late_masks_ = 0;
};

}  // namespace sluice
