// BlockPool: who owns which KV block, by number. Reference counts and the free list; no memory,
// no contents. Block 0 is the null block: table entries that are never read point to it; it is
// never given out.
//
// The free list is doubly linked through arrays, so taking, giving back and reviving a block in
// the middle are O(1). Its order is the order of reuse: what is worth nothing in front, what may
// still be hit (cached blocks) behind, least recently used first.
// Owner: KvManager. Threads: the engine's. Allocation: none after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace sluice {

using BlockId = std::int32_t;
inline constexpr BlockId kNullBlock = 0;

// Where a block goes in the order of reuse when nobody holds it any more.
enum class ReuseOrder : std::uint8_t { kFirst, kLast };

class BlockPool {
 public:
  // `num_blocks` with the null block; may grow up to `max_blocks`. 1 <= num_blocks <= max_blocks.
  BlockPool(std::int32_t num_blocks, std::int32_t max_blocks);

  std::int32_t num_blocks() const { return num_blocks_; }  // the null block included
  std::int32_t max_blocks() const { return static_cast<std::int32_t>(ref_counts_.size()); }
  std::int32_t num_free() const { return num_free_; }
  std::int32_t num_used() const { return num_blocks_ - 1 - num_free_; }
  std::int32_t ref_count(BlockId id) const { return ref_counts_[index(id)]; }

  // The next free block to be taken. REQUIRES: num_free() > 0.
  BlockId front() const { return next_[kNullBlock]; }
  // Takes front(): reference count 1. REQUIRES: num_free() > 0.
  BlockId take();
  // One more holder; a free block leaves the free list.
  void add_ref(BlockId id);
  // One holder less; true when that was the last and the block is free now.
  bool release(BlockId id, ReuseOrder order);
  // Moves a free block to the front: it has become worthless (no longer cached).
  void demote(BlockId id);

  // Adds blocks at the end of the range, to be used first. REQUIRES: target <= max_blocks().
  void grow(std::int32_t target);
  // True when the highest-numbered block is free; remove_last() then takes it out of service.
  bool last_is_free() const { return num_blocks_ > 1 && ref_counts_[index(num_blocks_ - 1)] == 0; }
  void remove_last();

  // CHECKs the list against the counts: each free block in it once, links consistent.
  void check_integrity() const;

 private:
  static std::size_t index(BlockId id) { return static_cast<std::size_t>(id); }
  void link_after(BlockId position, BlockId id);
  void unlink(BlockId id);

  // A ring through the null block: next_[0] is the front, previous_[0] the back.
  std::vector<BlockId> next_;
  std::vector<BlockId> previous_;
  std::vector<std::int32_t> ref_counts_;
  std::int32_t num_blocks_ = 1;
  std::int32_t num_free_ = 0;
};

}  // namespace sluice
