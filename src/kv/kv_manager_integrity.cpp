// Checks the invariants of block bookkeeping, in one place, apart from the code that keeps them.
#include <vector>

#include "base/check.h"
#include "kv/kv_manager.h"

namespace sluice {

void KvManager::check_held() const {
  std::int32_t protected_pages = 0;
  for (const HeldBlock& held : held_.all()) {
    CHECK(held.pins >= 0 && (held.pins > 0 || held.is_warm));
    CHECK(held_.find(held.name, held.group) == &held);
    if (!tier_.is_protected(held.name, held.group)) continue;
    CHECK(held.pins > 0);
    ++protected_pages;
  }
  CHECK(protected_pages == tier_.num_protected());
  std::int32_t ahead = 0;
  for (const std::int32_t blocks : ahead_) {
    CHECK(blocks >= 0);
    ahead += blocks;
  }
  CHECK(ahead <= num_paging_);
}

void KvManager::check_integrity() const {
  pool_.check_integrity();
  cache_.check_integrity();
  CHECK(pool_.num_free() + pool_.num_used() == num_usable_blocks() + pool_.num_above());
  // Held blocks above the end can move down.
  CHECK(num_held_blocks() <= num_usable_blocks());

  std::vector<std::int32_t> entries_of(index(pool_.max_blocks()), 0);
  std::vector<std::int32_t> group_of(index(pool_.max_blocks()), -1);
  std::int32_t promised = 0;
  for (std::int32_t slot = 0; slot < options_.max_num_seqs; ++slot) {
    const std::int32_t allocated = allocated_[index(slot)];
    CHECK(writable_until_[index(slot)] == kAllWritable ||
          writable_until_[index(slot)] <= allocated * options_.block_size);
    CHECK(published_[index(slot)] <= allocated && allocated <= max_blocks_per_seq_);
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      const std::int32_t first_held = first_held_[group_index(slot, g)];
      CHECK(promised_[group_index(slot, g)] >= 0);
      promised += promised_[group_index(slot, g)];
      CHECK(first_held >= 0 && first_held <= allocated);
      const BlockId* const ids = tables_.data() + group_index(slot, g) * index(max_blocks_per_seq_);
      for (std::int32_t b = 0; b < max_blocks_per_seq_; ++b) {
        const BlockId id = ids[b];
        if (b < first_held || b >= allocated) {
          CHECK(id == kNullBlock);
          continue;
        }
        CHECK(id > kNullBlock && id < pool_.max_blocks());
        ++entries_of[index(id)];
        // One group at a time: groups of different layers must not share a block's bytes.
        CHECK(group_of[index(id)] < 0 || group_of[index(id)] == g);
        group_of[index(id)] = g;
      }
    }
  }
  for (const HeldBlock& held : held_.all()) {
    if (held.block == kNullBlock) continue;
    ++entries_of[index(held.block)];
    CHECK(cache_.find(held.name, held.group) == held.block);
    CHECK(group_of[index(held.block)] < 0 || group_of[index(held.block)] == held.group);
  }
  std::int32_t paging = 0;
  std::int32_t in_line = 0;
  for (BlockId id = 0; id < static_cast<BlockId>(paging_.size()); ++id) {
    CHECK(paging_[index(id)] >= 0);
    entries_of[index(id)] += paging_[index(id)];
    paging += paging_[index(id)];
    in_line += in_line_[index(id)];
  }
  CHECK(paging == num_paging_ && in_line == unsaved_size_);
  for (std::int32_t i = 0; i < unsaved_size_; ++i) {
    const BlockId id = unsaved_[index((unsaved_first_ + i) % options_.max_blocks)];
    CHECK(in_line_[index(id)] == 1);
  }
  tier_.check_integrity();
  check_held();
  CHECK(tier_.num_under_way() <= num_paging_);
  CHECK(promised == total_promised_);
  CHECK(num_available_blocks() >= 0);
  std::int32_t free_cached = 0;
  for (BlockId id = 1; id < pool_.max_blocks(); ++id) {
    CHECK(pool_.ref_count(id) == entries_of[index(id)]);
    CHECK(moved_to_[index(id)] == kNullBlock);
    if (pool_.ref_count(id) > 0 || !cache_.holds(id)) continue;
    CHECK(id < pool_.num_blocks());
    ++free_cached;
  }
  CHECK(free_cached == free_cached_);
  CHECK(!cache_.holds(kNullBlock));
}

}  // namespace sluice
