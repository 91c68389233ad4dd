// TierOrder: which page of a tier is emptied first, when pages are valued by the seconds that they
// are expected to save. All pages have the same bytes, so that is also the order by seconds per
// byte.
//
// A hit of a block saves its computation: the weights' part, which is the same for all blocks, and
// attention, which grows with the block's depth (the number of blocks before it in its prompt). A
// block is of no use without the blocks before it, so it counts with the depth of the last block
// that was used together with it. The chance of a next use is estimated by the number of uses, and
// by aging: the value is added to a floor that rises to the value of each page that is emptied
// (greedy-dual; Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency
// Caching", 1998).
//
// It is a heap over the pages that may be emptied. Owner: TierIndex. Threads: the engine's.
// Allocation: none after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kv/block_pool.h"

namespace sluice {

enum class TierEviction : std::uint8_t {
  kLeastRecent,  // the page that was used least recently
  kSeconds,      // TierOrder
};

struct TierEvictionOptions {
  TierEviction by = TierEviction::kLeastRecent;
  // The depth at which attention costs as much as all else; 0: depth does not matter.
  double even_depth = 0;
  std::int32_t window = 0;  // attention looks back so many blocks; 0: all
};

class TierOrder {
 public:
  // Ids are those of TierIndex: 1 to `max_id`.
  TierOrder(std::int32_t max_id, const TierEvictionOptions& options);

  // The block of a page was used, and with it the blocks after it up to `depth`. The blocks of a
  // sequence are used from the last to the first. REQUIRES: the page is not inserted.
  void use(BlockId id, std::int32_t depth);
  // The page gets another block, which was never used. REQUIRES: the page is not inserted.
  void reset(BlockId id);
  // From now on, or no more, the page may be emptied.
  void insert(BlockId id);
  void remove(BlockId id);
  // Removes and returns the page with the smallest value; of equal ones the page that was used
  // first. REQUIRES: a page is inserted.
  BlockId take();

  bool contains(BlockId id) const { return place_[index(id)] != kOutside; }
  std::int32_t size() const { return static_cast<std::int32_t>(heap_.size()); }
  double value(BlockId id) const { return value_[index(id)]; }
  void check_integrity() const;

 private:
  static constexpr std::int32_t kOutside = -1;
  static constexpr std::uint8_t kMaxUses = 64;
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::pair<double, std::uint64_t> key(BlockId id) const {
    return {value_[index(id)], stamp_[index(id)]};
  }
  double seconds(std::int32_t depth) const;  // of a block, in units of one at depth 0
  void put(std::size_t place, BlockId id);
  void sift_up(std::size_t place);
  void sift_down(std::size_t place);

  const TierEvictionOptions options_;
  double floor_ = 0;
  std::uint64_t next_stamp_ = 0;
  std::vector<BlockId> heap_;
  // By id.
  std::vector<std::int32_t> place_;  // in the heap
  std::vector<double> value_;
  std::vector<std::uint64_t> stamp_;  // of the last use
  std::vector<std::uint8_t> uses_;
};

}  // namespace sluice
