#include "kv/kv_manager.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

KvOptions checked(KvOptions options) {
  if (options.max_blocks == 0) options.max_blocks = options.num_blocks;
  CHECK(options.block_size > 0 && !options.group_windows.empty());
  CHECK(options.num_blocks >= 1 && options.num_blocks <= options.max_blocks);
  CHECK(options.chunk_blocks >= 0);
  CHECK(options.tier_pages >= 0 &&
        (options.tier_pages == 0 || options.prefix_caching == PrefixCaching::kOn));
  CHECK(options.max_num_seqs > 0 && options.max_model_len > 0 && options.max_query_len > 0);
  return options;
}

}  // namespace

KvManager::KvManager(const KvOptions& options)
    : options_(checked(options)),
      num_groups_(static_cast<std::int32_t>(options_.group_windows.size())),
      max_blocks_per_seq_(blocks_for(options_.max_model_len)),
      pool_(options_.num_blocks, options_.max_blocks),
      cache_(options_.max_blocks),
      tier_(options_.tier_pages, options_.tier_eviction) {
  const std::size_t slots = index(options_.max_num_seqs);
  const std::size_t slot_groups = slots * index(num_groups_);
  tables_.assign(slot_groups * index(max_blocks_per_seq_), kNullBlock);
  allocated_.assign(slots, 0);
  writable_until_.assign(slots, 0);
  target_.assign(slots, 0);
  published_.assign(slots, 0);
  first_held_.assign(slot_groups, 0);
  promised_.assign(slot_groups, 0);
  ahead_.assign(slot_groups, 0);
  if (has_tier()) {
    paging_.assign(index(options_.max_blocks), 0);
    in_line_.assign(index(options_.max_blocks), 0);
    owners_.resize(index(options_.max_blocks));
    tail_tokens_.assign(index(options_.max_blocks), 0);
    depths_.assign(index(options_.max_blocks), 0);
    unsaved_.assign(index(options_.max_blocks), kNullBlock);
  }
  if (options_.max_blocks > 1) moved_to_.assign(index(options_.max_blocks), kNullBlock);
}

// The number of blocks to promise to a sequence that holds `held` blocks of a group and still needs
// `missing`: the most that it ever holds at once, minus `held`. A window with a chunk touches at
// most one block more than it fills, because block borders may cut both ends.
std::int32_t KvManager::promise_for(std::int32_t group, std::int32_t held,
                                    std::int32_t missing) const {
  if (window(group) == 0) return missing;
  const std::int64_t span = std::int64_t{window(group)} - 1 + options_.max_query_len;
  const std::int64_t peak = (span + options_.block_size - 1) / options_.block_size + 1;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(peak - held, 0, missing));
}

std::int64_t KvManager::most_released(std::int32_t slot) const {
  std::int64_t blocks = 0;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    blocks += allocated_[index(slot)] - first_held_[group_index(slot, g)];
    blocks += promised_[group_index(slot, g)] + ahead_[group_index(slot, g)];
  }
  return blocks;
}

std::int64_t KvManager::blocks_needed(std::int64_t tokens) const {
  const std::int64_t blocks = (tokens + options_.block_size - 1) / options_.block_size;
  const auto capped = static_cast<std::int32_t>(std::min<std::int64_t>(blocks, INT32_MAX));
  std::int64_t sum = 0;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    sum += window(g) == 0 ? blocks : promise_for(g, 0, capped);
  }
  return sum;
}

std::int32_t KvManager::watermark_blocks() const {
  return static_cast<std::int32_t>(std::ceil(options_.watermark * num_usable_blocks()));
}

std::int32_t KvManager::blocks_to_reach(std::int32_t slot, std::int32_t tokens) const {
  const std::int32_t planned = std::max(allocated_[index(slot)], target_[index(slot)]);
  const std::int32_t missing = blocks_for(tokens) - planned;
  if (missing <= 0) return 0;
  std::int32_t blocks = 0;
  for (std::int32_t g = 0; g < num_groups_; ++g) blocks += window(g) == 0 ? missing : 1;
  return blocks;
}

// `revived` of the blocks are free blocks with the wanted contents; taking those evicts nothing.
bool KvManager::may_take(std::int64_t blocks, std::int64_t revived, Headroom headroom) {
  std::int64_t left = num_available_blocks() - blocks;
  if (headroom.spare_cached) left -= free_cached_ - revived;
  if (left >= headroom.blocks) return true;
  last_shortage_ = static_cast<std::int32_t>(headroom.blocks - left);
  return false;
}

std::int32_t KvManager::match(const BlockNames& names, std::int32_t max_tokens) const {
  if (options_.prefix_caching == PrefixCaching::kOff || max_tokens <= 0) return 0;
  return match_names(names, max_tokens, [&](Hash128 name, std::int32_t g) {
    return cache_.find(name, g) != kNullBlock;
  });
}

// The blocks that an admission with this tail needs besides: a tail that is being saved is copied
// before the slot writes to it.
std::int32_t KvManager::tail_copies(const BlockNames& names, std::int32_t cached,
                                    std::int32_t group) const {
  if (cached % options_.block_size == 0) return 0;
  return pool_.ref_count(cache_.find(names.tail, group)) > 0 ? 1 : 0;
}

KvManager::Admittance KvManager::admittance(const BlockNames& names, std::int32_t num_tokens,
                                            std::int32_t reserved) const {
  CHECK(num_tokens > 0 && std::max(num_tokens, reserved) <= options_.max_model_len);
  Admittance need;
  need.cached = match(names, num_tokens - 1);
  const std::int32_t hits = blocks_for(need.cached);
  need.missing = blocks_for(std::max(num_tokens, reserved)) - hits;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t first = first_visible_block(need.cached, window(g), options_.block_size);
    need.promised +=
        promise_for(g, hits - first, need.missing) + tail_copies(names, need.cached, g);
    for (std::int32_t b = first; b < hits; ++b) {
      const Hash128 name = names.name(b, need.cached, options_.block_size);
      need.revived += pool_.ref_count(cache_.find(name, g)) == 0 ? 1 : 0;
    }
  }
  return need;
}

std::int64_t KvManager::blocks_to_admit(const BlockNames& names, std::int32_t num_tokens,
                                        std::int32_t reserved) const {
  const Admittance need = admittance(names, num_tokens, reserved);
  return need.promised + need.revived;
}

bool KvManager::promise(std::int32_t slot, std::int32_t tokens, Headroom headroom) {
  const std::int32_t end = blocks_for(tokens);
  const std::int32_t allocated = allocated_[index(slot)];
  if (end <= std::max(allocated, target_[index(slot)])) return true;
  const auto more = [&](std::int32_t g) {
    const std::int32_t held = allocated - first_held_[group_index(slot, g)];
    const std::int32_t ahead = window(g) == 0 ? ahead_[group_index(slot, g)] : 0;
    const std::int32_t has = promised_[group_index(slot, g)] + ahead;
    return std::max(0, promise_for(g, held, end - allocated) - has);
  };
  std::int64_t needed = 0;
  for (std::int32_t g = 0; g < num_groups_; ++g) needed += more(g);
  if (!may_take(needed, 0, headroom)) return false;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t added = more(g);
    promised_[group_index(slot, g)] += added;
    total_promised_ += added;
  }
  target_[index(slot)] = end;
  return true;
}

std::optional<std::int32_t> KvManager::admit(std::int32_t slot, const BlockNames& names,
                                             std::int32_t num_tokens, Headroom headroom,
                                             BlockChanges& changes, std::int32_t reserved) {
  CHECK(allocated_[index(slot)] == 0 && target_[index(slot)] == 0);
  const Admittance need = admittance(names, num_tokens, reserved);
  if (!may_take(need.promised + need.revived, need.revived, headroom)) return std::nullopt;
  const std::int32_t cached = need.cached;
  const std::int32_t missing = need.missing;
  const std::int32_t hits = blocks_for(cached);

  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t first = first_visible_block(cached, window(g), options_.block_size);
    const std::int32_t copies = tail_copies(names, cached, g);
    BlockId* const table = entries(slot, g);
    for (std::int32_t b = first; b < hits; ++b) {
      table[b] = cache_.find(names.name(b, cached, options_.block_size), g);
      free_cached_ -= pool_.ref_count(table[b]) == 0 ? 1 : 0;
      pool_.add_ref(table[b]);
      if (!held_.empty()) hold_block(table[b], cache_.name(table[b]), g);
    }
    first_held_[group_index(slot, g)] = first;
    promised_[group_index(slot, g)] = promise_for(g, hits - first, missing) + copies;
    total_promised_ += promised_[group_index(slot, g)];
    emit(slot, g, 0, hits, changes);
  }
  allocated_[index(slot)] = hits;
  writable_until_[index(slot)] = cached;
  target_[index(slot)] = hits + missing;
  published_[index(slot)] = cached / options_.block_size;
  if (!names.empty() && options_.prefix_caching == PrefixCaching::kOn) {
    prefix_stats_.queried_tokens += num_tokens;
    prefix_stats_.hit_tokens += cached;
  }
  return cached;
}

bool KvManager::admit_window(std::int32_t slot, std::int32_t count, Headroom headroom,
                             BlockChanges& changes) {
  CHECK(allocated_[index(slot)] == 0 && target_[index(slot)] == 0);
  CHECK(count > 0 && count <= max_blocks_per_seq_);
  if (!may_take(count, 0, headroom)) return false;
  append_blocks(slot, 0, count, changes);
  for (std::int32_t g = 1; g < num_groups_; ++g) first_held_[group_index(slot, g)] = count;
  allocated_[index(slot)] = count;
  target_[index(slot)] = count;
  published_[index(slot)] = count;
  writable_until_[index(slot)] = kAllWritable;
  return true;
}

bool KvManager::can_fork(std::int32_t parent, std::int32_t tokens) const {
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t first = first_visible_block(tokens, window(g), options_.block_size);
    // A prompt of one token leaves nothing to share.
    if (tokens > 0 && first_held_[group_index(parent, g)] > first) return false;
  }
  return blocks_for(tokens) <= allocated_[index(parent)];
}

bool KvManager::fork(std::int32_t parent, std::int32_t child, std::int32_t tokens,
                     std::int32_t num_tokens, Headroom headroom, BlockChanges& changes) {
  CHECK(allocated_[index(child)] == 0 && target_[index(child)] == 0);
  CHECK(tokens < num_tokens && can_fork(parent, tokens));
  const std::int32_t shared = blocks_for(tokens);
  // The partial last block will be copied, which takes one more block.
  const std::int32_t copied = tokens % options_.block_size != 0 ? 1 : 0;
  const std::int32_t missing = blocks_for(num_tokens) - shared;
  const auto promise = [&](std::int32_t g) {
    const std::int32_t first = first_visible_block(tokens, window(g), options_.block_size);
    return promise_for(g, shared - first, missing) + copied;
  };
  std::int64_t needed = 0;
  for (std::int32_t g = 0; g < num_groups_; ++g) needed += promise(g);
  if (!may_take(needed, 0, headroom)) return false;

  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t first = first_visible_block(tokens, window(g), options_.block_size);
    const BlockId* const source = entries(parent, g);
    BlockId* const table = entries(child, g);
    for (std::int32_t b = first; b < shared; ++b) {
      table[b] = source[b];
      pool_.add_ref(table[b]);
    }
    first_held_[group_index(child, g)] = first;
    promised_[group_index(child, g)] = promise(g);
    total_promised_ += promised_[group_index(child, g)];
    emit(child, g, 0, shared, changes);
  }
  allocated_[index(child)] = shared;
  target_[index(child)] = shared + missing;
  published_[index(child)] = tokens / options_.block_size;
  writable_until_[index(child)] = tokens;
  // The parent too must check for shared blocks before its next write.
  writable_until_[index(parent)] = std::min(writable_until_[index(parent)], tokens);
  return true;
}

void KvManager::free_outside_window(std::int32_t slot, std::int32_t first, BlockChanges& changes) {
  const std::int32_t allocated = allocated_[index(slot)];
  const std::int32_t missing = std::max(0, target_[index(slot)] - allocated);
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t visible = first_visible_block(first, window(g), options_.block_size);
    const std::int32_t begin = first_held_[group_index(slot, g)];
    const std::int32_t end = std::min(visible, allocated);
    if (begin >= end) continue;
    BlockId* const table = entries(slot, g);
    for (std::int32_t b = begin; b < end; ++b) {
      const bool freed = give_back(table[b]);
      table[b] = kNullBlock;
      // A block that a prompt freed is promised to its next chunk.
      if (freed && promised_[group_index(slot, g)] < missing) {
        ++promised_[group_index(slot, g)];
        ++total_promised_;
      }
    }
    first_held_[group_index(slot, g)] = end;
    emit(slot, g, begin, end - begin, changes);
  }
}

std::int32_t KvManager::blocks_to_take(std::int32_t slot, std::int32_t group,
                                       std::int32_t first_block, std::int32_t end_block) const {
  const std::int32_t allocated = allocated_[index(slot)];
  std::int32_t count = std::max(0, end_block - allocated);
  const std::span<const BlockId> ids = table(slot, group);
  for (std::int32_t b = first_block; b < allocated; ++b) {
    count += pool_.ref_count(ids[index(b)]) > 1 ? 1 : 0;
  }
  return count;
}

bool KvManager::extend_blocks(std::int32_t slot, std::int32_t first, std::int32_t count,
                              BlockChanges& changes) {
  DCHECK(count > 0 && first + count <= options_.max_model_len);
  free_outside_window(slot, first, changes);
  const std::int32_t first_block = first / options_.block_size;
  const std::int32_t end_block = blocks_for(first + count);
  std::int32_t unpromised = 0;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const std::int32_t needed = blocks_to_take(slot, g, first_block, end_block);
    unpromised += std::max(0, needed - promised_[group_index(slot, g)]);
  }
  if (unpromised > num_available_blocks()) {
    last_shortage_ = unpromised - num_available_blocks();
    return false;
  }
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    copy_shared(slot, g, first_block, changes);
    drop_tail_name(slot, g, first);
    append_blocks(slot, g, end_block, changes);
  }
  allocated_[index(slot)] = std::max(allocated_[index(slot)], end_block);
  writable_until_[index(slot)] = allocated_[index(slot)] * options_.block_size;
  return true;
}

void KvManager::copy_shared(std::int32_t slot, std::int32_t group, std::int32_t first_block,
                            BlockChanges& changes) {
  BlockId* const table = entries(slot, group);
  for (std::int32_t b = first_block; b < allocated_[index(slot)]; ++b) {
    const BlockId source = table[b];
    if (pool_.ref_count(source) <= 1) continue;
    table[b] = take_block(slot, group);
    changes.copies.push_back({source, table[b]});
    give_back(source);
    emit(slot, group, b, 1, changes);
  }
}

// The write at position `first` changes the block that the tail's name stands for.
void KvManager::drop_tail_name(std::int32_t slot, std::int32_t group, std::int32_t first) {
  const std::int32_t b = first / options_.block_size;
  if (first % options_.block_size == 0 || b >= allocated_[index(slot)]) return;
  const BlockId id = table(slot, group)[index(b)];
  if (cache_.holds(id)) cache_.erase(id);
}

void KvManager::append_blocks(std::int32_t slot, std::int32_t group, std::int32_t end_block,
                              BlockChanges& changes) {
  const std::int32_t begin = allocated_[index(slot)];
  if (begin >= end_block) return;
  BlockId* const table = entries(slot, group);
  for (std::int32_t b = begin; b < end_block; ++b) table[b] = take_block(slot, group);
  emit(slot, group, begin, end_block - begin, changes);
}

BlockId KvManager::take_block(std::int32_t slot, std::int32_t group) {
  if (promised_[group_index(slot, group)] > 0) {
    --promised_[group_index(slot, group)];
    --total_promised_;
  } else {
    CHECK(num_available_blocks() > 0);
  }
  const BlockId id = pool_.take();
  if (cache_.holds(id)) {
    cache_.erase(id);
    --free_cached_;
  }
  return id;
}

bool KvManager::give_back(BlockId id) {
  const bool named = cache_.holds(id);
  ReuseOrder order = named ? ReuseOrder::kLast : ReuseOrder::kFirst;
  // A pin that holds the block does not use it: the block is saved all the same.
  if (named && has_tier() && pool_.ref_count(id) == (is_pinned(id) ? 2 : 1)) {
    order = note_unused(id);
  }
  const bool freed = pool_.release(id, order);
  if (!named || !freed) return freed;
  if (id < pool_.num_blocks()) {
    ++free_cached_;
  } else {
    cache_.erase(id);
  }
  return true;
}

void KvManager::emit(std::int32_t slot, std::int32_t group, std::int32_t first, std::int32_t count,
                     BlockChanges& changes) {
  if (count == 0) return;
  changes.updates.push_back(
      {slot, group, first, count, static_cast<std::int32_t>(changes.block_ids.size())});
  const BlockId* const begin = entries(slot, group) + first;
  changes.block_ids.insert(changes.block_ids.end(), begin, begin + count);
}

void KvManager::publish(std::int32_t slot, std::span<const Hash128> hashes, std::int32_t computed,
                        const BlockOwner& owner) {
  if (options_.prefix_caching == PrefixCaching::kOff) return;
  const std::int32_t full = std::min(computed / options_.block_size, allocated_[index(slot)]);
  const std::int32_t end = std::min(full, static_cast<std::int32_t>(hashes.size()));
  for (std::int32_t b = published_[index(slot)]; b < end; ++b) {
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      const BlockId id = table(slot, g)[index(b)];
      if (id != kNullBlock && !cache_.holds(id)) give_name(id, hashes[index(b)], g, owner, b);
    }
  }
  published_[index(slot)] = std::max(published_[index(slot)], end);
}

// A block in use keeps its name. A free block passes its name to the block computed now and is then
// no longer cached. Otherwise a prompt that is repeated (its last block and its answer are always
// computed) would fill the cache with copies.
void KvManager::give_name(BlockId id, Hash128 hash, std::int32_t group, const BlockOwner& owner,
                          std::int32_t depth, std::int32_t tail_tokens) {
  const BlockId other = cache_.find(hash, group);
  if (other != kNullBlock) {
    if (pool_.ref_count(other) > 0) return;
    cache_.erase(other);
    --free_cached_;
    pool_.demote(other);
  }
  cache_.insert(id, hash, group);
  if (has_tier()) {
    owners_[index(id)] = owner;
    tail_tokens_[index(id)] = tail_tokens;
    depths_[index(id)] = depth;
  }
  if (!held_.empty()) hold_block(id, hash, group);
}

bool KvManager::publish_tail(std::int32_t slot, Hash128 name, std::int32_t computed,
                             const BlockOwner& owner) {
  const std::int32_t b = computed / options_.block_size;
  CHECK(computed % options_.block_size != 0 && b < allocated_[index(slot)]);
  if (options_.prefix_caching == PrefixCaching::kOff) return false;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const BlockId id = table(slot, g)[index(b)];
    // Not written since it was named, or named for another choice that shared it.
    const bool usable = cache_.holds(id) ? cache_.name(id) == name : pool_.ref_count(id) == 1;
    if (!usable) return false;
  }
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    const BlockId id = table(slot, g)[index(b)];
    if (!cache_.holds(id)) give_name(id, name, g, owner, b, computed % options_.block_size);
  }
  return true;
}

void KvManager::forget_names(std::span<const Hash128> names) {
  for (const Hash128 name : names) {
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      const std::int32_t page = tier_.forget(name, g);
      if (page != TierIndex::kNoPage) wrong_pages_.push_back(page);
      const BlockId id = cache_.find(name, g);
      if (id == kNullBlock) continue;
      cache_.erase(id);
      if (pool_.ref_count(id) > 0) continue;
      --free_cached_;
      pool_.demote(id);
    }
  }
}

void KvManager::forget(std::int32_t slot) {
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    for (const BlockId id : table(slot, g)) {
      if (!cache_.holds(id)) continue;
      if (has_tier()) {
        const std::int32_t page = tier_.forget(cache_.name(id), cache_.group(id));
        if (page != TierIndex::kNoPage) wrong_pages_.push_back(page);
      }
      drop_name(id);
    }
  }
}

void KvManager::release(std::int32_t slot) {
  std::int32_t deepest = 0;  // with a name
  for (std::int32_t b = allocated_[index(slot)] - 1; b >= 0; --b) {
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      BlockId& id = entries(slot, g)[b];
      if (id != kNullBlock && has_tier() && cache_.holds(id)) {
        deepest = std::max(deepest, b);
        depths_[index(id)] = deepest;
      }
      if (id != kNullBlock) give_back(id);
      id = kNullBlock;
    }
  }
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    total_promised_ -= promised_[group_index(slot, g)];
    promised_[group_index(slot, g)] = 0;
    ahead_[group_index(slot, g)] = 0;
    first_held_[group_index(slot, g)] = 0;
  }
  allocated_[index(slot)] = 0;
  writable_until_[index(slot)] = 0;
  target_[index(slot)] = 0;
  published_[index(slot)] = 0;
}

std::span<const BlockId> KvManager::table(std::int32_t slot, std::int32_t group) const {
  return {tables_.data() + group_index(slot, group) * index(max_blocks_per_seq_),
          index(allocated_[index(slot)])};
}

void KvManager::resize(std::int32_t num_blocks) {
  CHECK(num_blocks >= 1 && num_blocks <= pool_.max_blocks());
  CHECK(num_blocks >= pool_.num_blocks() || num_held_blocks() < num_blocks);
  for (BlockId id = num_blocks; id < pool_.num_blocks(); ++id) {
    if (pool_.ref_count(id) > 0 || !cache_.holds(id)) continue;
    cache_.erase(id);
    --free_cached_;
  }
  pool_.set_end(num_blocks);
}

void KvManager::drop_cached() {
  // From the top down, so that low ids are used first.
  for (BlockId id = pool_.num_blocks() - 1; id > kNullBlock; --id) {
    if (pool_.ref_count(id) > 0 || !cache_.holds(id)) continue;
    cache_.erase(id);
    pool_.demote(id);
  }
  free_cached_ = 0;
}

// The block's id after this call of move_down().
BlockId KvManager::moved(BlockId id, std::int32_t& moves_left, BlockChanges& changes) {
  if (id < pool_.num_blocks()) return id;
  if (moved_to_[index(id)] != kNullBlock) return moved_to_[index(id)];
  // A transfer that is under way names the block.
  if (has_tier() && paging_[index(id)] > 0) return id;
  if (moves_left == 0) return id;
  --moves_left;
  const BlockId to = pool_.front();
  if (cache_.holds(to)) {
    cache_.erase(to);
    --free_cached_;
  }
  CHECK(pool_.move(id) == to);
  if (cache_.holds(id)) cache_.move(id, to);
  if (has_tier()) {
    owners_[index(to)] = owners_[index(id)];
    tail_tokens_[index(to)] = tail_tokens_[index(id)];
    depths_[index(to)] = depths_[index(id)];
    if (in_line_[index(id)] != 0) line_up(to);
  }
  moved_to_[index(id)] = to;
  changes.copies.push_back({id, to});
  return to;
}

void KvManager::move_down(std::int32_t limit, BlockChanges& changes) {
  CHECK(changes.copies.empty());
  if (pool_.num_above() == 0) return;
  std::int32_t moves_left = limit;
  for (std::int32_t slot = 0; slot < options_.max_num_seqs; ++slot) {
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      BlockId* const table = entries(slot, g);
      std::int32_t first = allocated_[index(slot)];
      std::int32_t end = 0;
      for (std::int32_t b = first_held_[group_index(slot, g)]; b < allocated_[index(slot)]; ++b) {
        const BlockId to = moved(table[b], moves_left, changes);
        if (to == table[b]) continue;
        table[b] = to;
        first = std::min(first, b);
        end = b + 1;
      }
      if (first < end) emit(slot, g, first, end - first, changes);
    }
  }
  for (HeldBlock& held : held_.all()) {
    if (held.block != kNullBlock) held.block = moved(held.block, moves_left, changes);
  }
  for (const BlockCopy& copy : changes.copies) moved_to_[index(copy.source)] = kNullBlock;
}

}  // namespace sluice
