// KvTier: a place below the device's memory that keeps KV blocks, such as a folder on a disk. It
// has pages with numbers; a page holds one block. A tier moves whole blocks and checks them. It
// does not decide what is kept where: the caller names the page of every block, and owns the index.
//
// save() and load() only start. They never wait and never fail by themselves: the end of each comes
// out of poll(), with the error if there was one. A load that ends without an error has written
// exactly the bytes that were saved under this page and name; every doubt is an error, and the
// target is then undefined. kUnavailable says that the page could not be read now: it is as it was,
// and a later load may succeed. Every other error of a load says that the page does not hold the
// block. Loads go before saves that have not begun.
//
// Threads: one, the engine's. An implementation may use threads of its own; it does not take the
// compute threads' cores beyond what checksums cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "kv/paged_block.h"
#include "kv/tier_level.h"

namespace sluice {

// A block in its page. Names are secret (kv/block_hash.h), so a tier may keep them as they are.
struct TierPage {
  std::int32_t page = 0;  // [0, num_pages())
  std::int32_t group = 0;
  Hash128 name;
  Hash128 tenant;  // whose key encrypts the block, where the tier encrypts; only save() needs it
  SaveHaste haste = SaveHaste::kEasy;  // only for save()
};

struct TierMove {
  std::uint64_t id = 0;  // the caller's; reported by poll()
  Status status;         // the cause is external: a disk, a damaged page
};

// TierLevels: the blocks that each of two tiers behind one interface has moved since the start.
// Plain data.
struct TierLevels {
  struct Level {
    std::int64_t saved_blocks = 0;
    std::int64_t loaded_blocks = 0;

    bool operator==(const Level&) const = default;
  };
  bool are_two = false;
  Level fast;
  Level slow;

  bool operator==(const TierLevels&) const = default;
};

class KvTier {
 public:
  virtual ~KvTier() = default;

  virtual std::int32_t num_pages() const = 0;

  // The blocks that were here when the tier was opened, least recently used first. A second call
  // returns nothing.
  virtual std::vector<TierPage> take_stored() = 0;

  // Whether a save may be started now: false while the disk is full or failing, or the day's bytes
  // are written.
  virtual bool accepts_saves() const = 0;

  // Replaces what `page` holds. `block` stays valid and unchanged until the end is reported.
  // REQUIRES: nothing else is under way for this page.
  virtual void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) = 0;
  // REQUIRES: the page holds this block, or was saved with it; `block` is untouched until the end.
  virtual void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) = 0;
  // Notes that a block was used, for the order of take_stored() in a later process. Cheap.
  virtual void touch(std::int32_t page) = 0;
  // Forgets what the page holds, also for later processes. REQUIRES: nothing is under way for it.
  virtual void erase(std::int32_t page) = 0;

  // Appends what has ended since the last call, in order of completion. Never waits.
  virtual void poll(std::vector<TierMove>& ended) = 0;
  // Appends the blocks that a tier without room for all its pages has dropped since the last call,
  // to make room for others. Called after poll(): what poll() reported as saved may be lost by now,
  // and a page may have another block by now.
  virtual void take_lost(std::vector<TierPage>& /*lost*/) {}
  // Appends where blocks are from now on, in the order of the changes since the last call.
  virtual void take_levels(std::vector<PageLevel>& /*changes*/) {}
  // Returns when poll() has something to report, or after `at_most`.
  virtual void wait(Duration at_most) = 0;
  // Starts to make what was saved durable; returns when it is, or after `at_most`.
  virtual Status flush(Duration at_most) = 0;

  // The memory of this machine that blocks take now; 0 for a tier that is elsewhere.
  virtual std::int64_t memory_bytes() const { return 0; }

  // The two tiers behind this one, if there are two.
  virtual TierLevels levels() const { return {}; }
};

}  // namespace sluice
