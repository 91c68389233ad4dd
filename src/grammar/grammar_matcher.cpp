#include "grammar/grammar_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {

void GrammarMatcher::assign(TokenGrammarPtr grammar) {
  stacks_.reset();
  set_ = GrammarStacks::kDead;
  trim_at_ = kMaxStacks;
  grammar_ = std::move(grammar);
  if (grammar_ == nullptr) return;
  stacks_.emplace(grammar_->automaton());
  set_ = stacks_->enter(grammar_->automaton().start());
  levels_.resize(grammar_->trie().max_depth() + 1);
}

bool GrammarMatcher::can_end() const { return set_ != GrammarStacks::kDead && stacks_->ends(set_); }

void GrammarMatcher::fill(std::span<std::uint32_t> mask) {
  CHECK(mask.size() >= grammar_->trie().mask_words());
  std::ranges::fill(mask, 0U);
  if (set_ == GrammarStacks::kDead) return;
  trim();
  // By index: the walks below add sets, which may move the tops of this one.
  const std::size_t count = stacks_->tops(set_).size();
  for (std::size_t i = 0; i < count; ++i) {
    const GrammarStacks::Frame top = stacks_->frame(stacks_->tops(set_)[i]);
    const StateMask& state = grammar_->mask(top.state, spare_);
    state.add_to(mask);
    if (state.ends.empty() || top.below == GrammarStacks::kBottom) continue;
    const GrammarStacks::SetId caller = stacks_->resume(top.below);
    if (caller == GrammarStacks::kDead) continue;
    for (const std::uint32_t node : state.ends) {
      add_tokens_below(grammar_->trie(), *stacks_, caller, node, levels_, mask);
    }
  }
}

void GrammarMatcher::trim() {
  if (set_ == GrammarStacks::kDead || stacks_->size() <= trim_at_) return;
  set_ = stacks_->keep_only(set_);
  trim_at_ = kMaxStacks + 2 * stacks_->size();
}

bool GrammarMatcher::accept(TokenId token) {
  trim();
  const std::string_view bytes = grammar_->trie().bytes(token);
  if (bytes.empty()) set_ = GrammarStacks::kDead;
  for (const char byte : bytes) {
    if (set_ == GrammarStacks::kDead) break;
    set_ = stacks_->step(set_, static_cast<std::uint8_t>(byte));
  }
  return set_ != GrammarStacks::kDead;
}

}  // namespace sluice
