// The part of KvManager that keeps blocks of warm prompts and of pins in memory (held_blocks.h).
#include <utility>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice {

template <class Visit>
void KvManager::visit_needed(std::span<const Hash128> names, Visit visit) const {
  const auto blocks = static_cast<std::int32_t>(names.size());
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t first =
        first_visible_block(blocks * options_.block_size, window(g), options_.block_size);
    for (std::int32_t b = first; b < blocks; ++b) visit(b, g);
  }
}

std::int32_t KvManager::blocks_to_hold(std::span<const Hash128> names) const {
  std::int32_t count = 0;
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    count += is_wanted(names[index(b)], g) ? 0 : 1;
  });
  return count;
}

bool KvManager::is_wanted(Hash128 name, std::int32_t group) const {
  const HeldBlock* const held = held_.find(name, group);
  return held != nullptr && held->is_warm;
}

void KvManager::hold(std::span<const Hash128> names) {
  CHECK(options_.prefix_caching == PrefixCaching::kOn);
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    const Hash128 name = names[index(b)];
    held_.add(name, g).is_warm = true;
    const BlockId id = cache_.find(name, g);
    if (id != kNullBlock) hold_block(id, name, g);
  });
}

void KvManager::pin(std::span<const Hash128> names) {
  CHECK(options_.prefix_caching == PrefixCaching::kOn);
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    const Hash128 name = names[index(b)];
    ++held_.add(name, g).pins;
    tier_.protect(name, g);
    const BlockId id = cache_.find(name, g);
    if (id != kNullBlock) hold_block(id, name, g);
  });
}

void KvManager::unpin(std::span<const Hash128> names) {
  // The last block first, so that the beginning of the prefix is evicted last.
  const auto blocks = static_cast<std::int32_t>(names.size());
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    const std::int32_t first =
        first_visible_block(blocks * options_.block_size, window(g), options_.block_size);
    const Hash128 name = names[index(first + blocks - 1 - b)];
    HeldBlock* const held = held_.find(name, g);
    CHECK(held != nullptr && held->pins > 0);
    if (--held->pins > 0) return;
    tier_.unprotect(name, g);
    if (!held->is_warm) let_go_of(*held);
    held_.remove_if_unheld(*held);
  });
}

bool KvManager::let_go_of(HeldBlock& held) {
  if (held.block == kNullBlock) return false;
  give_back(std::exchange(held.block, kNullBlock));
  return true;
}

PinnedBlocks KvManager::count_blocks(std::span<const Hash128> names) const {
  PinnedBlocks count;
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    const Hash128 name = names[index(b)];
    ++count.all;
    if (cache_.find(name, g) != kNullBlock) {
      ++count.in_memory;
    } else if (tier_.find(name, g) != TierIndex::kNoPage) {
      ++count.in_tier;
    }
  });
  return count;
}

// Whether a pin holds this block now.
bool KvManager::is_pinned(BlockId id) const {
  if (held_.empty() || !cache_.holds(id)) return false;
  const HeldBlock* const held = held_.find(cache_.name(id), cache_.group(id));
  return held != nullptr && held->block == id && held->pins > 0;
}

// REQUIRES: `id` has that name.
void KvManager::hold_block(BlockId id, Hash128 name, std::int32_t group) {
  HeldBlock* const held = held_.find(name, group);
  if (held == nullptr || held->block != kNullBlock) return;
  // A free block may be promised to a sequence.
  if (pool_.ref_count(id) == 0 && num_available_blocks() <= 0) return;
  free_cached_ -= pool_.ref_count(id) == 0 ? 1 : 0;
  pool_.add_ref(id);
  held->block = id;
}

std::vector<BlockPlace> KvManager::needed_blocks(std::span<const Hash128> names) const {
  std::vector<BlockPlace> needed;
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    needed.push_back({b, g, cache_.find(names[index(b)], g)});
  });
  return needed;
}

BlockId KvManager::adopt(Hash128 name, std::int32_t group) {
  CHECK(cache_.find(name, group) == kNullBlock);
  HeldBlock* const held = held_.find(name, group);
  CHECK(held != nullptr && held->block == kNullBlock);
  if (num_available_blocks() <= 0) return kNullBlock;
  const BlockId id = pool_.take();
  if (cache_.holds(id)) {
    cache_.erase(id);
    --free_cached_;
  }
  cache_.insert(id, name, group);
  if (has_tier()) {
    owners_[index(id)] = {};
    tail_tokens_[index(id)] = 0;
  }
  held->block = id;
  return id;
}

void KvManager::drop_name(BlockId id) {
  const Hash128 name = cache_.name(id);
  const std::int32_t group = cache_.group(id);
  cache_.erase(id);
  HeldBlock* const held = held_.find(name, group);
  if (held == nullptr || held->block != id) return;
  held->block = kNullBlock;
  give_back(id);
}

bool KvManager::release_holds() {
  bool any = false;
  for (HeldBlock& held : held_.all()) {
    any = let_go_of(held) || any;
    held.is_warm = false;
  }
  held_.remove_unheld();
  return any;
}

void KvManager::end_warm_holds() {
  for (HeldBlock& held : held_.all()) {
    held.is_warm = false;
    if (held.pins == 0) let_go_of(held);
  }
  held_.remove_unheld();
}

std::int32_t KvManager::num_pinned_blocks() const {
  std::int32_t count = 0;
  for (const HeldBlock& held : held_.all()) count += held.block != kNullBlock ? 1 : 0;
  return count;
}

}  // namespace sluice
