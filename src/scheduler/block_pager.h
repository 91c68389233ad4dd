// BlockPager: moves KV blocks between memory and the tier below it, in transfers of plans.
// KvManager knows the blocks and holds them; BlockPager decides when they move and which sequences
// wait.
//
// Loads: when a waiting sequence's turn to be admitted comes, and the tier has blocks of it that
// memory has not, they are loaded first. The sequence waits and is passed over meanwhile, as one
// that waits for an adapter. When all its loads have ended, their blocks are cached blocks like
// others, and the sequence is admitted with those. It looks once: what a failed load, or a later
// eviction, leaves missing is computed. A sequence that needs a block which another one's load
// brings follows that load and then looks itself. So every wait ends, and no load that succeeds is
// done twice. A load that fails leaves its page to later loads, unless the page is damaged.
// Where a tier has two levels, and all is not loaded first, the beginning that the fast level has
// is, if that pays. A tier about as fast as the model loads the end of a prompt while the front is
// computed (back_loads.h): then the sequence is admitted at once.
//
// Saves: a block is saved as soon as its last holder has left, because its contents never change: a
// later save would write the same bytes. At most kMaxSaves are under way, fewer in small memory,
// and none is started while blocks are loaded. Only when sequences take turns
// in contended memory, saves go beside loads and come first in a plan: they make the room.
//
// Sequences that are streamed have their blocks in a file (stream_pages.h).
//
// Owner: the scheduler's state. Threads: the engine's. Allocation: when loads start; without a tier
// none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kv/kv_manager.h"
#include "request/sequence.h"
#include "scheduler/back_loads.h"
#include "scheduler/batch_plan.h"
#include "scheduler/paging_costs.h"
#include "scheduler/stream_pages.h"
#include "scheduler/transfer.h"

namespace sluice {

// Sums since the start.
struct PagingStats {
  std::int64_t loaded_blocks = 0;
  std::int64_t saved_blocks = 0;
  std::int64_t failed_loads = 0;  // blocks
  std::int64_t failed_saves = 0;
  std::int64_t computed_instead = 0;  // choices to compute what the tier has (PagingCosts)
  std::int64_t met = 0;               // sequences that began with BackLoads
  double saved_ns = 0;          // of steps: the hit tokens at the measured price of computing them
  std::int64_t hit_tokens = 0;  // that sequences found after their loads and not before
};

enum class SavesBesideLoads : std::uint8_t { kNo, kYes };

class BlockPager {
 public:
  static constexpr std::int32_t kMaxSaves = 16;

  // `least_tokens`: as in BackLoads; `near`: as in PagingCosts. REQUIRES: kv outlives this.
  BlockPager(KvManager& kv, std::int32_t least_tokens, double near)
      : kv_(kv), costs_(near), back_(kv, costs_, least_tokens), stream_(kv) {}

  bool has_tier() const { return kv_.tier().num_pages() > 0; }
  // Whether transfers are under way.
  bool busy() const { return loads_under_way() || !saves_.empty() || stream_.busy(); }
  const PagingStats& stats() const { return stats_; }

  // Starts the loads for a sequence that could be admitted now, unless computing is faster. Whether
  // it must wait for loads. `may_meet`: its prompt may be split, so that it can be loaded from the
  // back meanwhile; then its Paging says so.
  bool load_for(Sequence& sequence, const BlockNames& names, Headroom headroom, bool may_meet,
                TransferId& next_id, BatchPlan& plan);
  // The tokens from the beginning whose blocks its loads hold. REQUIRES: Paging::kLoading.
  std::int32_t loading_until(const Sequence& sequence) const;
  // The sequence has its slot, with blocks of its first `had` tokens.
  void note_admitted(Sequence& sequence, std::int32_t slot, std::int32_t had, TransferId& next_id,
                     BatchPlan& plan);
  BackLoads& back() { return back_; }
  const BackLoads& back() const { return back_; }
  StreamPages& stream() { return stream_; }
  const StreamPages& stream() const { return stream_; }
  // StreamPages::fetch().
  StreamFetch fetch_stream(Sequence& sequence, const StreamShape& shape, Headroom headroom,
                           TransferId& next_id, BatchPlan& plan);
  // BackLoads::take().
  std::int32_t take_loaded(std::int32_t slot, std::int32_t position);
  // The sequence has ended. Its loads go on: others may follow them.
  void forget(const Sequence& sequence);

  // A transfer has ended. False: it is not one of these.
  bool complete(const TransferResult& result, TimePoint now);
  // All transfers that ended by now are reported.
  void note_time(TimePoint now) {
    if (!back_.empty()) back_.note_time(now);
  }
  // A step has ended.
  void note_step_end(TimePoint now);
  // A step that had chunks of prompts and no decode.
  void note_chunks(std::int64_t tokens, Duration took) {
    costs_.note_chunks(tokens, took);
    price_hits();
  }
  // Whether all loads of a sequence have ended since the last call: followers may look again.
  bool take_loads_ended();

  // Starts saves. Called last in a plan, so that the plan's rows get their blocks first, unless
  // those are promised.
  void plan_saves(bool accepted, SavesBesideLoads beside_loads, SaveHaste haste,
                  TransferId& next_id, BatchPlan& plan);
  std::int32_t num_saves() const { return static_cast<std::int32_t>(saves_.size()); }

  void check_integrity() const;

 private:
  // The loads of one sequence; their ids count up from `first`.
  struct Load {
    Sequence* sequence = nullptr;  // null: it has ended
    TransferId first = 0;
    // A load is seen to end when a step does, and beside one step it costs nothing: the time counts
    // from the end of the first step that ran beside it.
    TimePoint counted_from;
    bool beside_step = false;
    std::int32_t moves = 0;      // blocks with a page
    std::int32_t under_way = 0;  // of them
    struct Level {
      std::int32_t under_way = 0;
      std::int32_t loaded = 0;  // without a failure
    };
    std::array<Level, kTierLevels> levels;
    Level& at(TierLevel level) { return levels[static_cast<std::size_t>(level)]; }
    std::int32_t had_tokens = 0;  // in memory before
    std::int32_t end_tokens = 0;  // held until all have ended, or under way
    Paging then = Paging::kDone;  // the sequence's, when all have ended
    std::vector<PagedBlock> blocks;
  };
  struct Save {
    TransferId id = 0;
    PagedBlock block;
  };

  bool loads_under_way() const { return !loads_.empty() || back_.num_under_way() > 0; }
  std::int32_t fast_beginning(const BlockNames& names, const BlocksBelow& below,
                              std::int32_t had) const;
  void end_block(Load& load, const TransferResult& result, TimePoint now);
  void end_loads(const Load& load);
  void note_hits(std::int64_t tokens);
  void price_hits();
  bool complete_save(const TransferResult& result);
  void add_transfer(TransferKind kind, const PagedBlock& block, TransferId& next_id,
                    BatchPlan& plan);

  KvManager& kv_;
  std::vector<Load> loads_;
  std::vector<Save> saves_;
  bool loads_ended_ = false;
  PagingCosts costs_;
  BackLoads back_;
  StreamPages stream_;
  std::int64_t unpriced_tokens_ = 0;  // hits from before the price of computing was known
  PagingStats stats_;
};

}  // namespace sluice
