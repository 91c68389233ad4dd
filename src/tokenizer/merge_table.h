// The merges of a BPE model: (left id, right id) -> rank and merged id, in one flat hash table.
// Filled by one thread, then immutable.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/token_id.h"

namespace sluice {

struct Merge {
  std::uint32_t rank;  // lower merges first; kNoRank: there is no such merge
  TokenId merged;
};
inline constexpr std::uint32_t kNoRank = 0xFFFFFFFF;

class MergeTable {
 public:
  explicit MergeTable(std::size_t merges)
      : slots_(std::bit_ceil(merges + merges / 2 + 2)),
        shift_(64 - std::countr_zero(slots_.size())) {}

  // A later merge of the same pair replaces the earlier merge, as in the reference.
  void add(TokenId left, TokenId right, Merge merge) {
    const std::uint64_t wanted = key(left, right);
    std::size_t i = start(wanted);
    while (slots_[i].merge.rank != kNoRank && slots_[i].key != wanted) i = next(i);
    slots_[i] = {wanted, merge};
  }

  void prefetch(TokenId left, TokenId right) const {
    __builtin_prefetch(&slots_[start(key(left, right))]);
  }

  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t wanted = key(left, right);
    std::size_t i = start(wanted);
    while (slots_[i].merge.rank != kNoRank && slots_[i].key != wanted) i = next(i);
    return slots_[i].merge;
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge{kNoRank, -1};
  };

  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t start(std::uint64_t k) const {
    const std::uint64_t mixed = (k ^ k >> 29) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(mixed >> shift_);
  }
  std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }

  std::vector<Slot> slots_;  // a power of two, at most two thirds full
  int shift_;
};

}  // namespace sluice
