// The part of KvManager that moves blocks to the tier below and back (tier_index.h).
#include <algorithm>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice {

void KvManager::restore_page(std::int32_t page, Hash128 name, std::int32_t group) {
  CHECK(group >= 0 && group < num_groups_);
  tier_.restore(page, name, group);
}

void KvManager::lose_page(const PagedBlock& lost) {
  if (tier_.find(lost.name, lost.group) == lost.page) tier_.forget(lost.name, lost.group);
}

std::int32_t KvManager::match_with_tier(const BlockNames& names, std::int32_t max_tokens) const {
  if (!has_tier() || max_tokens <= 0) return match(names, max_tokens);
  return match_names(names, max_tokens, [&](Hash128 name, std::int32_t g) {
    return cache_.find(name, g) != kNullBlock || tier_.find(name, g) != TierIndex::kNoPage;
  });
}

// visit(name, group, index) for all blocks that the token behind the first `tokens` sees.
template <class Visit>
void KvManager::visit_prefix(const BlockNames& names, std::int32_t tokens, BlockRange range,
                             Visit visit) const {
  const std::int32_t size = options_.block_size;
  const std::int32_t end = std::min(blocks_for(tokens), range.end);
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t first = first_visible_block(tokens, window(g), size);
    for (std::int32_t b = std::max(first, range.first); b < end; ++b) {
      visit(names.name(b, tokens, size), g, b);
    }
  }
}

BlocksBelow KvManager::blocks_below(const BlockNames& names, std::int32_t tokens) const {
  BlocksBelow below;
  std::array<std::int32_t, kTierLevels> blocks{};
  visit_prefix(names, tokens, {}, [&](Hash128 name, std::int32_t g, std::int32_t b) {
    if (cache_.find(name, g) != kNullBlock) return;
    const TierLevel level = tier_.level(tier_.find(name, g));
    ++blocks[static_cast<std::size_t>(level)];
    if (level == TierLevel::kSlow) below.first_slow = std::min(below.first_slow, b);
  });
  std::ranges::transform(blocks, below.tokens.begin(), [&](auto each) { return tokens_of(each); });
  return below;
}

LoadStart KvManager::begin_loads(const BlockNames& names, std::int32_t tokens, Headroom headroom,
                                 Hash128 tenant, std::vector<PagedBlock>& blocks,
                                 BlockRange range) {
  const std::int32_t size = options_.block_size;
  const auto visit = [&](auto visitor) { visit_prefix(names, tokens, range, visitor); };
  std::int64_t missing = 0;
  std::int64_t revived = 0;
  bool under_way = false;
  visit([&](Hash128 name, std::int32_t g, std::int32_t) {
    const BlockId id = cache_.find(name, g);
    if (id != kNullBlock) {
      revived += pool_.ref_count(id) == 0 ? 1 : 0;
      return;
    }
    ++missing;
    const std::int32_t page = tier_.find(name, g);
    CHECK(page != TierIndex::kNoPage);
    under_way = under_way || tier_.under_way(page);
  });
  if (under_way) return LoadStart::kUnderWay;
  if (!may_take(missing + revived, revived, headroom)) return LoadStart::kNoMemory;

  const std::size_t held = blocks.size();
  visit([&](Hash128 name, std::int32_t g, std::int32_t b) {
    const BlockId id = cache_.find(name, g);
    const std::int32_t page = id == kNullBlock ? tier_.find(name, g) : TierIndex::kNoPage;
    if (id != kNullBlock) hold_for_paging(id);
    const std::int32_t empty = std::max(0, (b + 1) * size - tokens);
    blocks.push_back({id, page, g, name, tenant, empty > 0 ? size - empty : 0, b});
    if (page != TierIndex::kNoPage) blocks.back().level = tier_.level(page);
  });
  // Only now, so that no wanted block is taken for another one.
  for (std::size_t i = held; i < blocks.size(); ++i) {
    PagedBlock& block = blocks[i];
    if (block.page == TierIndex::kNoPage) continue;
    block.block = empty_block();
    hold_for_paging(block.block);
    tier_.begin_load(block.page);
  }
  return LoadStart::kStarted;
}

// The free block that is reused next, without its name.
BlockId KvManager::empty_block() {
  const BlockId id = pool_.front();
  if (cache_.holds(id)) {
    cache_.erase(id);
    --free_cached_;
  }
  return id;
}

void KvManager::touch_saved(std::span<const Hash128> names) {
  const auto deepest = static_cast<std::int32_t>(names.size()) - 1;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    for (std::int32_t g = 0; g < num_groups_; ++g) tier_.touch(*name, g, deepest);
  }
}

std::optional<PagedBlock> KvManager::begin_fill(Hash128 name, std::int32_t group,
                                                std::int32_t index) {
  if (num_available_blocks() <= 0) return std::nullopt;
  PagedBlock block{.group = group, .name = name, .tenant = {}, .depth = index};
  block.block = empty_block();
  hold_for_paging(block.block);
  return block;
}

void KvManager::end_fill(const PagedBlock& block, const BlockOwner& owner, bool filled) {
  if (filled) give_name(block.block, block.name, block.group, owner, block.depth);
  let_go(block);
}

std::optional<PagedBlock> KvManager::begin_load_ahead(std::int32_t slot, std::int32_t group,
                                                      std::int32_t index, Hash128 name,
                                                      Hash128 tenant) {
  CHECK(index >= allocated_[KvManager::index(slot)]);
  if (!may_load_ahead(slot, group)) return std::nullopt;
  PagedBlock block{.group = group, .name = name, .tenant = tenant, .depth = index};
  block.block = cache_.find(name, group);
  const bool is_used = block.block != kNullBlock && pool_.ref_count(block.block) > 0;
  const bool slides = window(group) > 0;
  if (slides && !is_used && num_available_blocks() <= 0) return std::nullopt;
  if (block.block == kNullBlock) {
    block.page = tier_.find(name, group);
    if (block.page == TierIndex::kNoPage || tier_.under_way(block.page)) return std::nullopt;
    block.level = tier_.level(block.page);
    block.block = empty_block();
    tier_.begin_load(block.page);
  }
  hold_for_paging(block.block);
  if (!slides) {
    --promised_[group_index(slot, group)];
    --total_promised_;
  }
  ++ahead_[group_index(slot, group)];
  return block;
}

// The holds become those of the table.
void KvManager::append_loaded(std::int32_t slot, std::span<const PagedBlock> blocks) {
  const std::int32_t begin = allocated_[index(slot)];
  const std::int32_t count = static_cast<std::int32_t>(blocks.size()) / num_groups_;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const PagedBlock& block = blocks[i];
    const auto b = static_cast<std::int32_t>(i) % count;
    CHECK(block.group == static_cast<std::int32_t>(i) / count && block.depth == begin + b);
    if (block.block == kNullBlock) continue;
    CHECK(paging_[index(block.block)] > 0);
    entries(slot, block.group)[begin + b] = block.block;
    --paging_[index(block.block)];
    --num_paging_;
    --ahead_[group_index(slot, block.group)];
    if (!held_.empty() && cache_.holds(block.block)) {
      hold_block(block.block, cache_.name(block.block), block.group);
    }
  }
  allocated_[index(slot)] = begin + count;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    if (window(g) > 0) leave_window(slot, g, begin);
  }
  writable_until_[index(slot)] = (begin + count) * options_.block_size;
  prefix_stats_.hit_tokens += std::int64_t{count} * options_.block_size;
}

// In a sliding group the slot has gone on from block `begin` to the end of its table. Blocks that
// it sees no more are free for its next chunks.
void KvManager::leave_window(std::int32_t slot, std::int32_t group, std::int32_t begin) {
  const std::int32_t end = allocated_[index(slot)];
  const std::int32_t visible =
      first_visible_block(end * options_.block_size, window(group), options_.block_size);
  std::int32_t& first = first_held_[group_index(slot, group)];
  std::int32_t& promised = promised_[group_index(slot, group)];
  BlockId* const table = entries(slot, group);
  std::int32_t most = promised;
  for (std::int32_t b = first; b < std::min(visible, begin); ++b) {
    most += give_back(table[b]) ? 1 : 0;
    table[b] = kNullBlock;
  }
  first = std::max(first, visible);
  const std::int32_t missing = std::max(0, target_[index(slot)] - end);
  const std::int32_t needed = std::min(promise_for(group, end - first, missing), most);
  total_promised_ += needed - promised;
  promised = needed;
}

void KvManager::drop_load_ahead(std::int32_t slot, const PagedBlock& block, bool failed) {
  disown_load_ahead(slot, block);
  let_go(block);
  if (!failed || window(block.group) > 0 || num_available_blocks() <= 0) return;
  ++promised_[group_index(slot, block.group)];
  ++total_promised_;
}

void KvManager::hold_for_paging(BlockId id) {
  if (pool_.ref_count(id) == 0 && cache_.holds(id)) --free_cached_;
  pool_.add_ref(id);
  ++paging_[index(id)];
  ++num_paging_;
}

bool KvManager::end_load(const PagedBlock& block, PageLoadEnd end) {
  if (!tier_.end_load(block.page, block.name, block.group, end)) return false;
  give_name(block.block, block.name, block.group, {block.tenant, false}, block.depth, block.tokens);
  return true;
}

void KvManager::let_go(const PagedBlock& block) {
  CHECK(paging_[index(block.block)] > 0);
  --paging_[index(block.block)];
  --num_paging_;
  give_back(block.block);
}

void KvManager::take_wrong_pages(std::vector<std::int32_t>& pages) {
  std::erase_if(wrong_pages_, [&](std::int32_t page) {
    if (tier_.is_empty(page)) {
      pages.push_back(page);
      return true;
    }
    // Another block's save has replaced the contents, or will; a load of them is under way.
    return !tier_.under_way(page);
  });
}

// The last holder of a named block leaves. Returns the block's place in the order of reuse.
ReuseOrder KvManager::note_unused(BlockId id) {
  if (tier_.touch(cache_.name(id), cache_.group(id), depths_[index(id)]))
    return ReuseOrder::kMiddle;
  if (owners_[index(id)].memory_only) return ReuseOrder::kLast;
  line_up(id);
  return ReuseOrder::kLast;
}

void KvManager::line_up(BlockId id) {
  if (in_line_[index(id)] != 0) return;
  in_line_[index(id)] = 1;
  unsaved_[index((unsaved_first_ + unsaved_size_) % options_.max_blocks)] = id;
  ++unsaved_size_;
}

void KvManager::allow_saves(std::int32_t slot) {
  if (!has_tier()) return;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    for (const BlockId id : table(slot, g)) {
      if (id != kNullBlock && cache_.holds(id)) owners_[index(id)].memory_only = false;
    }
  }
}

std::optional<PagedBlock> KvManager::begin_save(std::span<const BlockCopy> copies) {
  while (unsaved_size_ > 0) {
    const BlockId id = unsaved_[index(unsaved_first_)];
    const bool pinned = is_pinned(id);
    const bool unused = pool_.ref_count(id) == (pinned ? 1 : 0) && cache_.holds(id);
    const bool wanted = unused && !owners_[index(id)].memory_only &&
                        tier_.find(cache_.name(id), cache_.group(id)) == TierIndex::kNoPage;
    if (wanted && !pinned && num_available_blocks() <= 0) return std::nullopt;
    // A pinned block that moves in this plan.
    if (wanted && pinned && std::ranges::find(copies, id, &BlockCopy::target) != copies.end()) {
      return std::nullopt;
    }
    const std::int32_t page = wanted ? tier_.begin_save() : TierIndex::kNoPage;
    if (wanted && page == TierIndex::kNoPage) return std::nullopt;
    // A block that is used again joins the line again when its last holder leaves.
    in_line_[index(id)] = 0;
    unsaved_first_ = (unsaved_first_ + 1) % options_.max_blocks;
    --unsaved_size_;
    if (!wanted) continue;
    hold_for_paging(id);
    return PagedBlock{id,
                      page,
                      cache_.group(id),
                      cache_.name(id),
                      owners_[index(id)].tenant,
                      tail_tokens_[index(id)],
                      depths_[index(id)]};
  }
  return std::nullopt;
}

void KvManager::end_save(const PagedBlock& block, bool saved) {
  // forget() may have removed the name because the contents are wrong.
  const bool named = cache_.holds(block.block) && cache_.name(block.block) == block.name &&
                     cache_.group(block.block) == block.group;
  tier_.end_save(block.page, block.name, block.group, saved && named, block.depth);
  const HeldBlock* const held = held_.find(block.name, block.group);
  if (held != nullptr && held->pins > 0) tier_.protect(block.name, block.group);
  if (saved && tier_.is_empty(block.page)) wrong_pages_.push_back(block.page);
  // A failed save is not tried again until the block has been used again: let_go() finds it in line
  // already.
  if (!saved) in_line_[index(block.block)] = 1;
  let_go(block);
  if (!saved) in_line_[index(block.block)] = 0;
}

}  // namespace sluice
