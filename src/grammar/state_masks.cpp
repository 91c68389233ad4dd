#include "grammar/state_masks.h"

namespace sluice {
namespace {

// A list of fewer tokens than this share of the vocabulary is smaller than a bit for each id.
constexpr std::size_t kListShare = 32;

void set_bits(std::span<const TokenId> ids, std::span<std::uint32_t> mask) {
  for (const TokenId id : ids) mask[static_cast<std::size_t>(id) / 32] |= 1U << (id % 32);
}

}  // namespace

void StateMask::add_to(std::span<std::uint32_t> mask) const {
  for (std::size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
  set_bits(ids, mask);
}

StateMask make_state_mask(const TokenTrie& trie, GrammarStacks& stacks, std::int32_t state,
                          std::size_t& visits) {
  StateMask mask;
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  std::vector<GrammarStacks::SetId> levels(trie.max_depth() + 1);
  levels[0] = stacks.only(state);
  for (std::uint32_t i = 0; i < nodes.size(); ++visits) {
    const TokenTrie::Node& node = nodes[i];
    const GrammarStacks::SetId set = stacks.step(levels[node.depth - 1U], node.byte);
    if (set == GrammarStacks::kDead) {
      i = node.end;
      continue;
    }
    if (node.token >= 0) {
      const std::span<const TokenId> ids = trie.ids(node);
      mask.ids.insert(mask.ids.end(), ids.begin(), ids.end());
    }
    if (stacks.ends(set) && node.end > i + 1) mask.ends.push_back(i);
    levels[node.depth] = set;
    ++i;
  }
  if (mask.ids.size() * kListShare > static_cast<std::size_t>(trie.vocab_size())) {
    mask.words.resize(trie.mask_words());
    set_bits(mask.ids, mask.words);
    mask.ids = {};
  }
  mask.ids.shrink_to_fit();
  mask.ends.shrink_to_fit();
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

RuleMasks::~RuleMasks() {
  for (const auto& mask : masks_) delete mask.load(std::memory_order_relaxed);
}

const StateMask* RuleMasks::publish(std::size_t state, StateMask mask) {
  auto made = std::make_unique<const StateMask>(std::move(mask));
  const StateMask* expected = nullptr;
  if (!masks_[state].compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) {
    return expected;
  }
  bytes_.fetch_add(made->bytes(), std::memory_order_relaxed);
  return made.release();
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
