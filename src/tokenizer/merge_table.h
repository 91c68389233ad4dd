// MergeTable: the merges of a BPE model, (left id, right id) -> rank and merged id, in one flat
// hash table. MergeTableBuilder fills a table in an image; MergeTable reads it there. A MergeTable
// owns nothing and does not change: any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/result.h"
#include "base/token_id.h"

namespace sluice {

struct Merge {
  std::uint32_t rank;  // lower merges first; kNoRank: there is no such merge
  TokenId merged;
};
inline constexpr std::uint32_t kNoRank = 0xFFFFFFFF;

// A slot of the hash table, which has open addressing. All zero: the slot is empty.
struct MergeSlot {
  std::uint64_t key = 0;
  std::uint32_t rank_plus_one = 0;
  std::uint32_t merged = 0;  // id
};

class MergeTable {
 public:
  MergeTable() = default;

  // The merges in this table, of a model with ids below `ids`. Error: a table without an empty slot
  // (a search would not end). Ids are checked at their use: an id that is not below `ids` reads as
  // `ids` - 1.
  static Result<MergeTable> open(std::span<const MergeSlot> slots, std::size_t ids) {
    if (!std::has_single_bit(slots.size()) || slots.size() < 2 ||
        std::ranges::none_of(slots, [](const MergeSlot& s) { return s.rank_plus_one == 0; })) {
      return invalid_argument("the table of merges has no empty slot");
    }
    return MergeTable(slots, ids);
  }

  void prefetch(TokenId left, TokenId right) const {
    __builtin_prefetch(&slots_[start(key(left, right))]);
  }

  Merge find(TokenId left, TokenId right) const {
    const MergeSlot& slot = slots_[place(key(left, right))];
    // No branch here, because it is hard to predict whether a pair merges.
    return {slot.rank_plus_one - 1, static_cast<TokenId>(std::min(slot.merged, last_id_))};
  }

 private:
  friend class MergeTableBuilder;
  MergeTable(std::span<const MergeSlot> slots, std::size_t ids)
      : slots_(slots.data()),
        mask_(slots.size() - 1),
        shift_(64 - std::countr_zero(slots.size())),
        last_id_(static_cast<std::uint32_t>(ids) - 1) {}

  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t start(std::uint64_t k) const {
    const std::uint64_t mixed = (k ^ k >> 29) * 0x9E3779B97F4A7C15;
    return static_cast<std::size_t>(mixed >> shift_);
  }
  // The slot of the key, or the empty slot where it would be.
  std::size_t place(std::uint64_t wanted) const {
    std::size_t i = start(wanted);
    while (slots_[i].rank_plus_one != 0 && slots_[i].key != wanted) i = (i + 1) & mask_;
    return i;
  }

  const MergeSlot* slots_ = nullptr;  // a power of two, at most two thirds full
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::uint32_t last_id_ = 0;
};

class MergeTableBuilder {
 public:
  static std::size_t slots_for(std::size_t merges) {
    return std::bit_ceil(merges + merges / 2 + 2);
  }

  // The slots must be zero and outlive the builder and its view. REQUIRES: slots_for(all merges)
  // slots, ids below `ids`.
  MergeTableBuilder(std::span<MergeSlot> slots, std::size_t ids)
      : slots_(slots), view_(slots, ids) {
    CHECK(std::has_single_bit(slots.size()) && slots.size() >= 2);
  }

  // A later merge of the same pair replaces the earlier merge, as in the reference.
  void add(TokenId left, TokenId right, Merge merge) {
    const std::uint64_t wanted = MergeTable::key(left, right);
    slots_[view_.place(wanted)] = {wanted, merge.rank + 1,
                                   static_cast<std::uint32_t>(merge.merged)};
  }

  const MergeTable& view() const { return view_; }

 private:
  std::span<MergeSlot> slots_;
  MergeTable view_;
};

}  // namespace sluice
