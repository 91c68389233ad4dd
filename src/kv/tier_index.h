// TierIndex: which block each page of a tier holds, by name and group of layers. It handles page
// numbers only; the tier moves the bytes (offload/kv_tier.h). A page is empty, being saved, saved,
// or saved and being loaded. A copy stays until its page is taken for another block: a page that
// is empty, or else the one that TierEviction says. Pages under way are never taken, and neither
// are protected pages: those of pinned blocks, at most half of all pages.
//
// It is a PrefixCache and a BlockPool over pages: page p has the id p + 1, and a save or load under
// way is a holder, as is the protection.
// Owner: KvManager. Threads: the engine's. Allocation: none after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash128.h"
#include "kv/block_pool.h"
#include "kv/prefix_cache.h"
#include "kv/tier_level.h"
#include "kv/tier_order.h"

namespace sluice {

// How the load of a page has ended.
enum class PageLoadEnd : std::uint8_t {
  kLoaded,
  kUnreadable,  // now; a later load may read it
  kDamaged,     // the page does not hold the block
};

class TierIndex {
 public:
  static constexpr std::int32_t kNoPage = -1;

  explicit TierIndex(std::int32_t num_pages, const TierEvictionOptions& eviction = {})
      : names_(num_pages + 1),
        pages_(num_pages + 1, num_pages + 1),
        by_seconds_(eviction.by == TierEviction::kSeconds),
        order_(num_pages, eviction),
        protected_(static_cast<std::size_t>(num_pages) + 1, 0),
        levels_(static_cast<std::size_t>(num_pages), TierLevel::kSlow) {}

  std::int32_t num_pages() const { return pages_.max_blocks() - 1; }
  std::int32_t num_saved() const { return names_.size(); }
  std::int32_t num_under_way() const;  // pages; linear in their number while some are protected

  // The page that the block is saved in, or kNoPage.
  std::int32_t find(Hash128 name, std::int32_t group) const { return names_.find(name, group) - 1; }
  // Whether a save or load of this page is under way.
  bool under_way(std::int32_t page) const {
    return pages_.ref_count(page + 1) > protected_[index(page + 1)];
  }

  TierLevel level(std::int32_t page) const { return levels_[index(page)]; }
  void set_level(const PageLevel& now) { levels_[index(now.page)] = now.level; }

  // A block that the tier had when it was opened. Called in the order of last use. REQUIRES: the
  // page is empty. False: another page has the block.
  bool restore(std::int32_t page, Hash128 name, std::int32_t group);

  // The page for a new copy; kNoPage when all are under way. The block it held is forgotten.
  std::int32_t begin_save();
  // The page has the block now, or nothing when the save failed or another page has the block.
  // `depth`: of the last block that was used with it (tier_order.h).
  void end_save(std::int32_t page, Hash128 name, std::int32_t group, bool saved,
                std::int32_t depth = 0);

  // REQUIRES: the page is saved.
  void begin_load(std::int32_t page) { hold(page + 1); }
  // A damaged page is emptied. True when the loaded bytes are still the block's.
  bool end_load(std::int32_t page, Hash128 name, std::int32_t group, PageLoadEnd end);

  // The block was used: its page will be taken later. False: there is no copy. The blocks of a
  // sequence are touched from the last to the first.
  bool touch(Hash128 name, std::int32_t group, std::int32_t depth = 0);
  // Forgets the copy of a block. Returns the page that had it, or kNoPage.
  std::int32_t forget(Hash128 name, std::int32_t group);
  // Whether the page has no block and nothing is under way.
  bool is_empty(std::int32_t page) const { return !names_.holds(page + 1) && !under_way(page); }

  // Protects the copy of the block from begin_save() until unprotect() or until the copy is
  // forgotten. Has no effect when there is no copy, or when half of the pages are protected.
  void protect(Hash128 name, std::int32_t group);
  void unprotect(Hash128 name, std::int32_t group);
  bool is_protected(Hash128 name, std::int32_t group) const {
    return protected_[index(names_.find(name, group))] != 0;
  }
  std::int32_t num_protected() const { return num_protected_; }

  void check_integrity() const;

 private:
  static std::size_t index(BlockId id) { return static_cast<std::size_t>(id); }
  void end_protection(BlockId id);

  void hold(BlockId id) {
    if (by_seconds_ && order_.contains(id)) order_.remove(id);
    pages_.add_ref(id);
  }
  void give_back(BlockId id) {
    const bool named = names_.holds(id);
    const bool freed = pages_.release(id, named ? ReuseOrder::kLast : ReuseOrder::kFirst);
    if (by_seconds_ && named && freed) order_.insert(id);
  }

  PrefixCache names_;
  BlockPool pages_;
  bool by_seconds_;
  TierOrder order_;  // the free pages with a name, unless the pool's order decides
  std::vector<std::uint8_t> protected_;  // by id
  std::int32_t num_protected_ = 0;
  std::vector<TierLevel> levels_;  // by page
};

}  // namespace sluice
