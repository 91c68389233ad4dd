// HeldBlocks: the names of blocks that stay in memory although no sequence uses them, and the block
// that has each name now. Warm prompts and pins hold blocks. KvManager keeps one reference to each
// held block, so the block is not evicted. A name without a block is wanted: its block is held as
// soon as it is computed or used.
// Owner: KvManager. Threads: the engine's. Only add() allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash128.h"
#include "kv/block_pool.h"

namespace sluice {

struct HeldBlock {
  Hash128 name;
  std::int32_t group = 0;
  BlockId block = kNullBlock;
  bool is_warm = false;   // KvManager::hold()
  std::int32_t pins = 0;  // KvManager::pin() without unpin()
};

class HeldBlocks {
 public:
  // Null: nothing holds the name.
  HeldBlock* find(Hash128 name, std::int32_t group) {
    const auto found = places_.find({name, group});
    return found == places_.end() ? nullptr : &held_[found->second];
  }
  const HeldBlock* find(Hash128 name, std::int32_t group) const {
    const auto found = places_.find({name, group});
    return found == places_.end() ? nullptr : &held_[found->second];
  }
  // The entry of the name, which is made if there is none.
  HeldBlock& add(Hash128 name, std::int32_t group) {
    const auto [found, is_new] = places_.try_emplace({name, group}, held_.size());
    if (is_new) held_.push_back({name, group});
    return held_[found->second];
  }
  // Removes the entries that nothing holds any more. REQUIRES: they have no block.
  void remove_unheld() {
    std::erase_if(held_, [](const HeldBlock& held) { return !is_used(held); });
    places_.clear();
    for (std::size_t i = 0; i < held_.size(); ++i) {
      places_.emplace(Key{held_[i].name, held_[i].group}, i);
    }
  }
  // The same for one entry.
  void remove_if_unheld(HeldBlock& held) {
    if (is_used(held)) return;
    const auto place = static_cast<std::size_t>(&held - held_.data());
    places_.erase({held.name, held.group});
    if (place + 1 < held_.size()) {
      held = held_.back();
      places_[{held.name, held.group}] = place;
    }
    held_.pop_back();
  }

  bool empty() const { return held_.empty(); }
  std::span<HeldBlock> all() { return held_; }
  std::span<const HeldBlock> all() const { return held_; }

 private:
  struct Key {
    Hash128 name;
    std::int32_t group = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>(key.name.low) ^ static_cast<std::size_t>(key.group);
    }
  };
  static bool is_used(const HeldBlock& held) { return held.is_warm || held.pins > 0; }

  std::vector<HeldBlock> held_;
  std::unordered_map<Key, std::size_t, KeyHash> places_;  // in held_
};

}  // namespace sluice
