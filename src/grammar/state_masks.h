// StateMask: the tokens that a grammar allows in one state of a rule, whichever rule calls it.
// A token that stays inside the rule, or ends together with it, is allowed in every context. For a
// token that goes on behind the rule's end, the mask only says where: the matcher walks on from
// there with the caller it knows.
// RuleMasks: the masks of one rule, made one by one; grammars that contain the same rule share
// them. RuleMaskCache: the rules of recent grammars.
// Threads: any; masks are published once and never change. Memory: the cache holds at most
// kMaxCachedBytes in masks of rules; a grammar keeps its own alive.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash128.h"
#include "base/token_id.h"
#include "grammar/grammar_stacks.h"
#include "grammar/token_trie.h"

namespace sluice {

struct StateMask {
  std::vector<std::uint32_t> words;  // a bit for each allowed id; empty: `ids` lists them
  std::vector<TokenId> ids;
  // Nodes of the trie at which the rule may have ended, if tokens go on below them.
  std::vector<std::uint32_t> ends;

  std::size_t bytes() const {
    return sizeof(StateMask) + 4 * (words.size() + ids.size() + ends.size());
  }
  void add_to(std::span<std::uint32_t> mask) const;
};

// Walks the trie from each state. `stacks` is working memory for this automaton. Adds the number of
// visited nodes to `visits`.
StateMask make_state_mask(const TokenTrie& trie, GrammarStacks& stacks, std::int32_t state,
                          std::size_t& visits);

// The same from the mask of a state that reads all texts of at most `bytes` bytes alike
// (alike_states.h): only longer tokens are walked. REQUIRES: 0 < bytes <=
// TokenTrie::kMaxShortBytes.
StateMask make_state_mask(const TokenTrie& trie, GrammarStacks& stacks, std::int32_t state,
                          const StateMask& alike, std::int32_t bytes, std::size_t& visits);

// Adds the tokens below trie node `node` (not its own) that are allowed after set `from`.
void add_tokens_below(const TokenTrie& trie, GrammarStacks& stacks, GrammarStacks::SetId from,
                      std::uint32_t node, std::vector<GrammarStacks::SetId>& levels,
                      std::span<std::uint32_t> mask);

class RuleMasks {
 public:
  explicit RuleMasks(std::size_t states) : masks_(states) {}
  RuleMasks(const RuleMasks&) = delete;
  RuleMasks& operator=(const RuleMasks&) = delete;

  const StateMask* find(std::size_t state) const {
    return masks_[state].load(std::memory_order_acquire);
  }
  // Returns the mask that was published first.
  const StateMask* publish(std::size_t state, StateMask mask);
  // The state has the mask of another one of this rule.
  const StateMask* share(std::size_t state, const StateMask* mask);
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::vector<std::atomic<const StateMask*>> masks_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const StateMask>> owned_;
  std::atomic<std::size_t> bytes_ = 0;
};

// Shared by the grammars that contain the rule, and by the cache.
using RuleMasksPtr = std::shared_ptr<RuleMasks>;

class RuleMaskCache {
 public:
  static constexpr std::size_t kMaxCachedBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxRules = 1024;

  // The masks of the rule with this hash. Equal hashes have equal numbers of states.
  RuleMasksPtr get(const Hash128& hash, std::size_t states);

 private:
  std::mutex mutex_;
  std::unordered_map<Hash128, RuleMasksPtr> rules_;
  std::deque<Hash128> order_;  // the oldest first
};

}  // namespace sluice
