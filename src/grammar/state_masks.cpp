#include "grammar/state_masks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice {
namespace {

// A list of fewer tokens than this share of the vocabulary is smaller than a bit for each id.
constexpr std::size_t kListShare = 32;

void set_bits(std::span<const TokenId> ids, std::span<std::uint32_t> mask) {
  for (const TokenId id : ids) mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
}

// Walks all tokens of more than `known` bytes, adds those that are allowed, and where rules end.
void walk_tokens(const TokenTrie& trie, GrammarStacks& stacks, std::int32_t state,
                 std::int32_t known, StateMask& mask, std::size_t& visits) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<GrammarStacks::SetId> levels(trie.max_depth() + 1);
  levels[0] = stacks.only(state);
  for (std::uint32_t i = 0; i < nodes.size(); ++visits) {
    const TokenTrie::Node& node = nodes[i];
    if (node.longest <= known) {
      i = node.end;
      continue;
    }
    const GrammarStacks::SetId set = stacks.step(levels[node.depth - 1U], node.byte);
    if (set == GrammarStacks::kDead) {
      i = node.end;
      continue;
    }
    levels[node.depth] = set;
    if (node.depth <= known) {
      ++i;
      continue;
    }
    if (node.token >= 0) {
      const std::span<const TokenId> ids = trie.ids(node);
      mask.ids.insert(mask.ids.end(), ids.begin(), ids.end());
    }
    if (stacks.ends(set) && node.end > i + 1) mask.ends.push_back(i);
    ++i;
  }
}

void pack(const TokenTrie& trie, StateMask& mask) {
  if (!mask.words.empty()) {
    set_bits(mask.ids, mask.words);
    mask.ids = {};
  }
  if (mask.ids.size() * kListShare > static_cast<std::size_t>(trie.vocab_size())) {
    mask.words.resize(trie.mask_words());
    set_bits(mask.ids, mask.words);
    mask.ids = {};
  }
  mask.ids.shrink_to_fit();
  mask.ends.shrink_to_fit();
}

}  // namespace

void StateMask::add_to(std::span<std::uint32_t> mask) const {
  for (std::size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
  set_bits(ids, mask);
}

StateMask make_state_mask(const TokenTrie& trie, GrammarStacks& stacks, std::int32_t state,
                          std::size_t& visits) {
  StateMask mask;
  walk_tokens(trie, stacks, state, 0, mask, visits);
  pack(trie, mask);
  return mask;
}

StateMask make_state_mask(const TokenTrie& trie, GrammarStacks& stacks, std::int32_t state,
                          const StateMask& alike, std::int32_t bytes, std::size_t& visits) {
  StateMask mask;
  const std::span<const std::uint32_t> short_tokens = trie.short_tokens(bytes);
  mask.words.resize(alike.words.size());
  for (std::size_t i = 0; i < alike.words.size(); ++i) {
    mask.words[i] = alike.words[i] & short_tokens[i];
  }
  std::ranges::copy_if(alike.ids, std::back_inserter(mask.ids), [&](TokenId id) {
    return trie.bytes(id).size() <= static_cast<std::size_t>(bytes);
  });
  std::ranges::copy_if(alike.ends, std::back_inserter(mask.ends),
                       [&](std::uint32_t node) { return trie.nodes()[node].depth <= bytes; });
  walk_tokens(trie, stacks, state, bytes, mask, visits);
  pack(trie, mask);
  return mask;
}

void add_tokens_below(const TokenTrie& trie, GrammarStacks& stacks, GrammarStacks::SetId from,
                      std::uint32_t node, std::vector<GrammarStacks::SetId>& levels,
                      std::span<std::uint32_t> mask) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  levels[nodes[node].depth] = from;
  for (std::uint32_t i = node + 1; i < nodes[node].end;) {
    const TokenTrie::Node& below = nodes[i];
    const GrammarStacks::SetId set = stacks.step(levels[below.depth - 1U], below.byte);
    if (set == GrammarStacks::kDead) {
      i = below.end;
      continue;
    }
    if (below.token >= 0) set_bits(trie.ids(below), mask);
    levels[below.depth] = set;
    ++i;
  }
}

const StateMask* RuleMasks::publish(std::size_t state, StateMask mask) {
  auto made = std::make_unique<const StateMask>(std::move(mask));
  const StateMask* expected = nullptr;
  if (!masks_[state].compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    return expected;
  }
  bytes_.fetch_add(made->bytes(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  owned_.push_back(std::move(made));
  return owned_.back().get();
}

const StateMask* RuleMasks::share(std::size_t state, const StateMask* mask) {
  const StateMask* expected = nullptr;
  return masks_[state].compare_exchange_strong(expected, mask, std::memory_order_acq_rel)
             ? mask
             : expected;
}

RuleMasksPtr RuleMaskCache::get(const Hash128& hash, std::size_t states) {
  const std::lock_guard lock(mutex_);
  auto& masks = rules_[hash];
  if (!masks) {
    // Shared: see RuleMasksPtr.
    masks = std::make_shared<RuleMasks>(states);
    order_.push_back(hash);
  }
  const RuleMasksPtr result = masks;
  std::size_t bytes = 0;
  for (const auto& [name, rule] : rules_) bytes += rule->bytes();
  while (order_.size() > 1 && (bytes > kMaxCachedBytes || order_.size() > kMaxRules)) {
    const auto oldest = rules_.find(order_.front());
    bytes -= oldest->second->bytes();
    rules_.erase(oldest);
    order_.pop_front();
  }
  return result;
}

}  // namespace sluice
