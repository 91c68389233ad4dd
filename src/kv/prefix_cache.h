// PrefixCache: maps a hash to the KV block with that content, per group. It is only an index: it
// holds no references and does not decide what is evicted; the owner erases a block here before it
// reuses it. A name belongs to one block at a time. When two sequences compute the same content,
// the second keeps its own block without a name, because block tables are append-only.
//
// An open-addressing hash table of block ids with at least twice as many entries as blocks,
// allocated once. Owner: KvManager. Threads: the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash128.h"
#include "kv/block_pool.h"

namespace sluice {

class PrefixCache {
 public:
  explicit PrefixCache(std::int32_t max_blocks);

  // The block named `hash` in `group`, or kNullBlock.
  BlockId find(Hash128 hash, std::int32_t group) const;
  bool holds(BlockId id) const { return groups_[index(id)] >= 0; }
  // The block's name and the group it is in. REQUIRES: holds(id).
  Hash128 name(BlockId id) const { return hashes_[index(id)]; }
  std::int32_t group(BlockId id) const { return groups_[index(id)]; }
  std::int32_t size() const { return size_; }

  // Names a block. REQUIRES: it has no name, and no other block of the group has this one.
  void insert(BlockId id, Hash128 hash, std::int32_t group);
  // Forgets a block's name. REQUIRES: it has one.
  void erase(BlockId id);
  // The name of `from` becomes that of `to`. REQUIRES: `from` has one, `to` has none.
  void move(BlockId from, BlockId to);

  // CHECKs that the table and the names agree.
  void check_integrity() const;

 private:
  static std::size_t index(BlockId id) { return static_cast<std::size_t>(id); }
  std::size_t home(Hash128 hash, std::int32_t group) const {
    return (hash.low + static_cast<std::uint64_t>(group) * 0x9E3779B97F4A7C15ULL) & mask_;
  }

  std::vector<BlockId> table_;  // kNullBlock = empty
  std::size_t mask_ = 0;
  std::vector<Hash128> hashes_;       // by block
  std::vector<std::int16_t> groups_;  // by block; -1 = no name
  std::int32_t size_ = 0;
};

// The index of the first block that a query at `position` sees through `window` (0 = all
// positions).
constexpr std::int32_t first_visible_block(std::int32_t position, std::int32_t window,
                                           std::int32_t block_size) {
  return window == 0 || position < window ? 0 : (position - window + 1) / block_size;
}

// How many of the first `limit` blocks a sequence may share, if `present` says for each whether it
// is there. In a full-attention group (window 0) all of them must be there; in a sliding group only
// those that the next token can still see.
template <class Present>
std::int32_t match_blocks(std::int32_t window, std::int32_t block_size, std::int32_t limit,
                          Present present) {
  if (window == 0) {
    std::int32_t count = 0;
    while (count < limit && present(count)) ++count;
    return count;
  }
  // Searches backwards from the end: `end` is a match when all blocks visible from it are there.
  std::int32_t end = limit;
  for (std::int32_t block = limit - 1; block >= 0; --block) {
    if (block < first_visible_block(end * block_size, window, block_size)) break;
    if (!present(block)) end = block;
  }
  return end;
}

}  // namespace sluice
