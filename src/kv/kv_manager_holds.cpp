// The part of KvManager that keeps blocks of warm prompts in memory (held_blocks.h).
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
    count += held_.wants(names[index(b)], g) ? 0 : 1;
  });
  return count;
}

void KvManager::hold(std::span<const Hash128> names) {
  CHECK(options_.prefix_caching == PrefixCaching::kOn);
  visit_needed(names, [&](std::int32_t b, std::int32_t g) {
    const Hash128 name = names[index(b)];
    if (held_.wants(name, g)) return;
    held_.add(name, g);
    const BlockId id = cache_.find(name, g);
    if (id != kNullBlock) hold_block(id, name, g);
  });
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
  for (const HeldBlock& held : held_.all()) {
    if (held.block == kNullBlock) continue;
    give_back(held.block);
    any = true;
  }
  held_.clear();
  return any;
}

std::int32_t KvManager::num_pinned_blocks() const {
  std::int32_t count = 0;
  for (const HeldBlock& held : held_.all()) count += held.block != kNullBlock ? 1 : 0;
  return count;
}

}  // namespace sluice
