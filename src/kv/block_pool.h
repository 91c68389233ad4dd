// BlockPool: the reference counts and the free list of KV blocks, by block id. It holds no memory
// or contents. Block 0 is the null block: table entries that are never read point to it, and the
// pool never hands it out.
//
// The free list is doubly linked through arrays, so taking, giving back and reviving a block in
// the middle are O(1). Its order is the order of reuse: blocks without cached content first, then
// cached blocks that a tier has a copy of, then the other cached blocks; both least recently used
// first.
//
// Blocks in service are those below num_blocks(). The pool never hands out blocks at or above it.
// After set_end() has lowered num_blocks(), some blocks above it may still be held (num_above()).
// Once move() or release() has freed them, they stay out of service until set_end() raises the end.
// Owner: KvManager. Threads: the engine's. Allocation: none after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace sluice {

using BlockId = std::int32_t;
inline constexpr BlockId kNullBlock = 0;

// The place of a block in the order of reuse when its last holder leaves.
enum class ReuseOrder : std::uint8_t {
  kFirst,   // not cached
  kMiddle,  // cached, with a copy in a tier
  kLast,    // cached
};

class BlockPool {
 public:
  // `num_blocks` with the null block; may grow up to `max_blocks`. 1 <= num_blocks <= max_blocks.
  BlockPool(std::int32_t num_blocks, std::int32_t max_blocks);

  std::int32_t num_blocks() const { return num_blocks_; }  // the null block included
  std::int32_t max_blocks() const { return static_cast<std::int32_t>(ref_counts_.size()); }
  std::int32_t num_free() const { return num_free_; }
  std::int32_t num_used() const { return num_blocks_ - 1 - num_free_ + num_above_; }
  std::int32_t num_above() const { return num_above_; }  // held, but out of service
  std::int32_t ref_count(BlockId id) const { return ref_counts_[index(id)]; }

  // The next free block to be taken. REQUIRES: num_free() > 0.
  BlockId front() const {
    const BlockId first = next_[kNullBlock];
    return first == middle_end() ? next_[index(first)] : first;
  }
  // Takes front(): reference count 1. REQUIRES: num_free() > 0.
  BlockId take();
  // Adds a holder; a free block leaves the free list.
  void add_ref(BlockId id);
  // Removes a holder; true when that was the last one.
  bool release(BlockId id, ReuseOrder order);
  // Moves a free block to the front, because it is no longer cached.
  void demote(BlockId id);

  // Puts the blocks below `end` into service and takes all others out. New free blocks are used
  // first, in ascending order. REQUIRES: 1 <= end <= max_blocks().
  void set_end(std::int32_t end);
  // Takes front() and transfers all references of `from` to it; returns the new block. REQUIRES:
  // `from` is held and out of service, num_free() > 0.
  BlockId move(BlockId from);

  // CHECKs the list against the counts: each free block is in it once, and the links are
  // consistent.
  void check_integrity() const;

 private:
  static std::size_t index(BlockId id) { return static_cast<std::size_t>(id); }
  // A mark in the ring, no block: all before it are kFirst or kMiddle.
  BlockId middle_end() const { return max_blocks(); }
  BlockId place_for(ReuseOrder order) const;
  void link_after(BlockId position, BlockId id);
  void unlink(BlockId id);

  // A ring through the null block: next_[0] is the front, previous_[0] the back.
  std::vector<BlockId> next_;
  std::vector<BlockId> previous_;
  std::vector<std::int32_t> ref_counts_;
  std::int32_t num_blocks_ = 1;
  std::int32_t num_free_ = 0;
  std::int32_t num_above_ = 0;
};

}  // namespace sluice
