// BlockPool: who owns which KV block, by number. Reference counts and the free list; no memory,
// no contents. Block 0 is the null block: table entries that are never read point to it; it is
// never given out.
//
// The free list is doubly linked through arrays, so taking, giving back and reviving a block in
// the middle are O(1). Its order is the order of reuse: what is worth nothing in front, what may
// still be hit (cached blocks) behind, least recently used first.
//
// Blocks in service are those below num_blocks(). Blocks at or above it are never given out. After
// set_end() has lowered num_blocks(), some of them may still be held (num_above()); they leave
// their holders by move() or release() and then stay out of service until set_end() raises the end.
// Owner: KvManager. Threads: the engine's. Allocation: none after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace sluice {

using BlockId = std::int32_t;
inline constexpr BlockId kNullBlock = 0;

// The place of a block in the order of reuse when its last holder leaves.
enum class ReuseOrder : std::uint8_t { kFirst, kLast };

class BlockPool {
 public:
  // `num_blocks` with the null block; may grow up to `max_blocks`. 1 <= num_blocks <= max_blocks.
  BlockPool(std::int32_t num_blocks, std::int32_t max_blocks);

  std::int32_t num_blocks() const { return num_blocks_; }  // the null block included
  std::int32_t max_blocks() const { return static_cast<std::int32_t>(ref_counts_.size()); }
  std::int32_t num_free() const { return num_free_; }
  std::int32_t num_used() const { return num_blocks_ - 1 - num_free_ + num_above_; }
  std::int32_t num_above() const { return num_above_; }  // held, and out of service
  std::int32_t ref_count(BlockId id) const { return ref_counts_[index(id)]; }

  // The next free block to be taken. REQUIRES: num_free() > 0.
  BlockId front() const { return next_[kNullBlock]; }
  // Takes front(): reference count 1. REQUIRES: num_free() > 0.
  BlockId take();
  // One more holder; a free block leaves the free list.
  void add_ref(BlockId id);
  // One holder less; true when that was the last one.
  bool release(BlockId id, ReuseOrder order);
  // Moves a free block to the front: it has become worthless (no longer cached).
  void demote(BlockId id);

  // Puts the blocks below `end` into service and takes all others out. New free blocks are used
  // first, in ascending order. REQUIRES: 1 <= end <= max_blocks().
  void set_end(std::int32_t end);
  // All holders of `from` hold the block returned instead, which was the front. REQUIRES: `from`
  // is held and out of service, num_free() > 0.
  BlockId move(BlockId from);

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
  std::int32_t num_above_ = 0;
};

}  // namespace sluice
