// HeldBlocks: the names of blocks that stay in memory although no sequence uses them, and the block
// that has each name now. KvManager holds a reference to each of these blocks, so they are not
// evicted. A name without a block is wanted: its block is held as soon as it is computed.
// Owner: KvManager. Threads: the engine's. Only add() allocates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash128.h"
#include "kv/block_pool.h"

namespace sluice {

struct HeldBlock {
  Hash128 name;
  std::int32_t group = 0;
  BlockId block = kNullBlock;
};

class HeldBlocks {
 public:
  // Null: the name is not wanted.
  HeldBlock* find(Hash128 name, std::int32_t group) {
    const auto place = lower_bound(name, group);
    return place != held_.end() && is(*place, name, group) ? &*place : nullptr;
  }
  bool wants(Hash128 name, std::int32_t group) const {
    return const_cast<HeldBlocks*>(this)->find(name, group) != nullptr;
  }
  // REQUIRES: the name is not wanted yet. Invalidates what find() gave.
  void add(Hash128 name, std::int32_t group) {
    held_.insert(lower_bound(name, group), {name, group, kNullBlock});
  }
  void clear() { held_.clear(); }

  bool empty() const { return held_.empty(); }
  std::int32_t size() const { return static_cast<std::int32_t>(held_.size()); }
  std::span<HeldBlock> all() { return held_; }
  std::span<const HeldBlock> all() const { return held_; }

 private:
  static bool is(const HeldBlock& held, Hash128 name, std::int32_t group) {
    return held.name == name && held.group == group;
  }
  std::vector<HeldBlock>::iterator lower_bound(Hash128 name, std::int32_t group) {
    return std::lower_bound(held_.begin(), held_.end(), HeldBlock{name, group, kNullBlock},
                            [](const HeldBlock& a, const HeldBlock& b) {
                              return a.name != b.name ? a.name < b.name : a.group < b.group;
                            });
  }

  std::vector<HeldBlock> held_;  // by name and group
};

}  // namespace sluice
