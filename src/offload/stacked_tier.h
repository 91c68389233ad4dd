// StackedTier: a fast tier before a slow one, as one tier: `--kv-ram` before `--kv-disk`.
//
// The pages of the stack are those of the slow tier, and every block goes to both. A block that
// leaves the fast tier for lack of room costs no write. A block is loaded from the fast tier if it
// has a copy, else, and when that copy fails, from the slow one. A block that came from the slow
// tier is then copied to the fast one, at most kMostPromotions at a time, because the load ends
// after its copy.
//
// Saves: a save that a client waits for (SaveHaste::kAwaited) ends when the fast tier has the
// block; the slow tier's write follows from there (write-behind). At most a quarter of the fast
// tier's pages wait for such a write, and they make no room for others until it has succeeded or
// failed. So many are on their way to the slow tier at a time that one of its writes can take those
// of adjacent pages, while the next ones are read. Any other save runs in both tiers at once and
// ends with the later one. A save ends well when one of both has the block.
//
// While the slow tier takes none, blocks go to the fast tier only. They may make room there, and
// take_lost() then reports them; those that are still there when the slow tier takes blocks again
// are written then. A failed write is tried again. The slow tier keeps what it had in a page whose
// block was not written, for the next process.
//
// flush() also writes the blocks that wait, as far as the slow tier takes them. The destructor
// drops them.
//
// Owner: the engine's executor. Threads: KvTier's; those of both tiers; one that writes blocks
// behind, unless WriteBehind::kByCaller. That thread calls functions of both tiers, one at a time
// with the engine's, except that it calls any beside wait(). REQUIRES: ids of moves are below 2^63.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "base/rng.h"
#include "kv/tier_index.h"
#include "offload/keeping_tier.h"
#include "offload/kv_tier.h"
#include "offload/page_writes.h"

namespace sluice {

// A thread of the stack advances the writes from the fast tier to the slow one, or only poll(),
// wait() and flush() do, for tests.
enum class WriteBehind : std::uint8_t { kByThread, kByCaller };

class StackedTier final : public KvTier {
 public:
  static constexpr int kMostPromotions = 2;
  // Blocks on their way behind, at a time: those of two writes of a disk, or this many small ones.
  static constexpr std::size_t kMostWrites = 64;
  static std::size_t most_writes(std::size_t block_bytes) {
    return std::clamp<std::size_t>(2 * PageWrites::kMostBytes / block_bytes, 2, kMostWrites);
  }

  // REQUIRES: both have blocks of the same size; nothing is in the fast tier.
  StackedTier(std::unique_ptr<KeepingTier> fast, std::unique_ptr<KvTier> slow,
              WriteBehind writes = WriteBehind::kByThread);
  ~StackedTier() override;

  std::int32_t num_pages() const override { return slow_->num_pages(); }
  std::vector<TierPage> take_stored() override { return slow_->take_stored(); }
  bool accepts_saves() const override { return slow_->accepts_saves() || fast_->accepts_saves(); }
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override;
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override;
  void touch(std::int32_t page) override;
  void erase(std::int32_t page) override;
  void poll(std::vector<TierMove>& ended) override;
  void take_lost(std::vector<TierPage>& lost) override;
  void take_levels(std::vector<PageLevel>& changes) override;
  void wait(Duration at_most) override;
  Status flush(Duration at_most) override;
  std::int64_t memory_bytes() const override {
    return fast_->memory_bytes() + slow_->memory_bytes();
  }
  TierLevels levels() const override;

 private:
  struct Move {
    TierPage page;
    std::span<std::byte> target;        // of a load
    std::span<const std::byte> source;  // of a save
    std::int32_t copy = -1;             // the page of the fast tier that it uses now
    bool copies = false;                // to that page; else from it
    bool in_slow = false;               // it is under way there
    bool tried_slow = false;            // a save: it was begun there
    Status status;                      // the slow tier's

    bool saves() const { return !source.empty(); }
  };
  // A block that only the fast tier has. Another block of the same page has another ticket.
  struct OnlyFast {
    TierPage page;
    std::uint64_t ticket = 0;
  };
  struct Waiting {
    std::int32_t page = 0;
    std::uint64_t ticket = 0;
  };
  // A block on its way from the fast tier to the slow one. Calls for its page wait for the end.
  struct Write {
    TierPage page;
    std::uint64_t ticket = 0;
    std::int32_t copy = -1;  // that is read; -1: it has been
    std::vector<std::byte> block;
    bool erases = false;     // the page, at the end
    std::uint64_t next = 0;  // the move that begins at the end; 0: none
  };

  // The name of a stack's page in copies_.
  static Hash128 key(std::int32_t page) {
    return {0, SplitMix64(static_cast<std::uint64_t>(page))()};  // a permutation
  }
  static PageLoadEnd page_load_end(const Status& status) {
    if (status) return PageLoadEnd::kLoaded;
    return status.error().code == ErrorCode::kUnavailable ? PageLoadEnd::kUnreadable
                                                          : PageLoadEnd::kDamaged;
  }
  TierPage& copied(std::int32_t copy) { return copied_[static_cast<std::size_t>(copy)]; }
  std::size_t most_kept() const { return static_cast<std::size_t>(fast_->num_pages()) / 4; }

  // All below are called under mutex_.
  void begin_save(std::uint64_t id, Move& move);
  void begin_load(std::uint64_t id, Move& move);
  bool begin_copy(std::uint64_t id, Move& move, std::span<const std::byte> block, bool keeps);
  void begin_slow_save(std::uint64_t id, Move& move);
  void begin_slow_load(std::uint64_t id, Move& move);
  void erase_now(std::int32_t page);
  void forget_copy(std::int32_t page);
  void note_level(std::int32_t page);
  void clear_copy(std::int32_t copy);
  void drop_if_empty(std::int32_t copy);
  void release(std::int32_t copy);
  // The fast tier has the block no more.
  void lose(std::int32_t page);
  void advance();
  void end_fast(std::uint64_t id, Move& move, const Status& status);
  void end_copy(std::uint64_t id, Move& move, bool saved);
  void end_slow(std::uint64_t id, Move& move, Status status);
  void finish(std::uint64_t id);
  void take_lost_copies();

  // stacked_tier_writes.cpp
  void run_writes();
  Write* write_of(std::int32_t page);
  bool still_wanted(std::int32_t page, std::uint64_t ticket) const;
  bool has_writes() const { return !writes_.empty() || !waiting_.empty(); }
  void add_waiting(const TierPage& page);
  void begin_writes();
  void end_read(std::uint64_t id, Write& write, const Status& status);
  void end_write(std::uint64_t id, bool written);

  mutable std::mutex mutex_;  // of all below but the tiers
  std::condition_variable news_;
  TierIndex copies_;              // which page of the stack each page of the fast tier copies
  std::vector<TierPage> copied_;  // the same by page of the fast tier; page -1: none
  std::unordered_set<std::int32_t> kept_;  // pages of the fast tier
  std::unordered_map<std::uint64_t, Move> moves_;
  std::unordered_map<std::int32_t, OnlyFast> only_fast_;  // by page of the stack
  std::deque<Waiting> waiting_;  // for a write; without effect if the ticket is of the past
  std::unordered_map<std::uint64_t, Write> writes_;
  std::vector<std::vector<std::byte>> spare_;  // blocks of writes that have ended
  std::vector<TierMove> ended_;                // not reported yet
  std::vector<TierPage> lost_;                 // not reported yet
  std::vector<TierPage> reported_;             // of lost_: their saves' ends have been reported
  std::vector<PageLevel> level_changes_;       // not reported yet
  std::vector<TierMove> parts_;
  std::vector<TierPage> lost_copies_;
  std::uint64_t tickets_ = 0;
  std::size_t block_bytes_ = 0;  // known with the first save
  int promotions_ = 0;           // under way
  bool hurries_ = false;         // writes do not rest
  bool stopping_ = false;
  TierLevels levels_{.are_two = true, .fast = {}, .slow = {}};

  // Below the blocks of writes_, which the threads of the tiers use until the tiers are destroyed.
  const std::unique_ptr<KeepingTier> fast_;
  const std::unique_ptr<KvTier> slow_;

  std::thread thread_;  // last, because it uses all members
};

}  // namespace sluice
