// BackLoads: while chunks compute a prompt from the front, blocks of it that only the tier below
// has are loaded from the back. Where the front meets them, the sequence takes them over and goes
// on behind them. For tiers that take about as long for a token as the model (PagingCosts).
//
// Nothing waits for these loads: a block that has not come when the front is there is computed, and
// so is one whose load failed. Only a front that lacks memory, which loads under way hold, waits
// for kMostWaits plans before others are displaced for it. How many are asked for follows from the
// rates of both sides, anew in every plan, so that the last load should end when the front is
// there. A loaded block is valid whatever its predecessors' state, because its name stands for its
// whole prefix.
//
// A block takes the place of one that the slot was promised, so loads need no memory of their own.
// It is held until the slot takes it over, passes it or ends.
//
// Only whole blocks, and never the last token.
//
// A group of layers with a sliding window loads only those blocks that are seen from the end of all
// that is loaded. So the front takes over everything up to that end, or nothing: a block that fails
// is computed, with all before it. These blocks come first and take memory besides the promise,
// because the front has a window of its own meanwhile.
// Owner: BlockPager. Threads: the engine's. Allocation: when loads begin.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kv/kv_manager.h"
#include "request/sequence.h"
#include "scheduler/batch_plan.h"
#include "scheduler/paging_costs.h"
#include "scheduler/transfer.h"

namespace sluice {

class BackLoads {
 public:
  static constexpr std::int32_t kMostWaits = 4;

  // `least_tokens`: of the first loads together, and of a chunk where the front goes to meet the
  // loads. Less is not worth a step. 0: never. REQUIRES: both outlive this.
  BackLoads(KvManager& kv, PagingCosts& costs, std::int32_t least_tokens);

  // Whether the blocks behind `had` tokens may be loaded so, if `found` tokens are in memory or in
  // the tier.
  bool worth(const Sequence& sequence, std::int32_t had, std::int32_t found) const;

  // Begins for a sequence that has its slot and, in its table, blocks of its first `had` tokens.
  void begin(const Sequence& sequence, std::int32_t slot, std::int32_t had, TransferId& next_id,
             BatchPlan& plan);
  // Asks for more. Called once in a plan. `next`: by slot, the first token that no plan has.
  void plan_more(const std::vector<std::int32_t>& next, TransferId& next_id, BatchPlan& plan);
  // The slot's sequence leaves it. Loads under way go on, because others may follow them.
  void end(std::int32_t slot);

  bool empty() const { return all_.empty(); }
  bool active(std::int32_t slot) const { return find(slot) != nullptr; }
  // The slot takes over blocks that begin at `position`. Returns the position behind them.
  // REQUIRES: all tokens before it are planned.
  std::int32_t take(std::int32_t slot, std::int32_t position);
  // The most tokens of the next chunk: as far as the loads are expected to come, or have come.
  std::int32_t chunk_limit(std::int32_t slot, std::int32_t position) const;
  // The front lacks memory. Whether it should wait in this plan, because loads that it may meet are
  // under way. True at most kMostWaits times between begin() and end().
  bool wait_for_memory(std::int32_t slot);

  // A transfer has ended. False: it is not one of these.
  bool complete(const TransferResult& result);
  // All transfers that ended by now are reported.
  void note_time(TimePoint now);
  std::int32_t num_under_way() const { return num_under_way_; }
  std::int32_t num_held() const { return num_held_; }  // blocks, those under way included

  void check_integrity() const;

 private:
  enum class State : std::uint8_t {
    kMissing,
    kUnderWay,
    kReady,   // held
    kPassed,  // under way, and of no use to the slot any more
    kTaken,
    kUnseen,  // a sliding window does not see it from the end
  };
  // Transfers with ids from `first` on.
  struct Batch {
    TransferId first = 0;
    std::vector<std::int32_t> entries;  // of One::states, by transfer
  };
  struct One {
    const Sequence* sequence = nullptr;  // null: it has left its slot
    std::int32_t slot = 0;
    std::int32_t begin = 0;  // blocks [begin, end) are concerned, those from `next` on asked for
    std::int32_t end = 0;
    std::int32_t next = 0;
    std::int32_t all_seen = 0;  // from this block on, every group's blocks are loaded
    bool stopped = false;       // asks for no more
    // By group and block: entry group * (end - begin) + block - begin.
    std::vector<PagedBlock> blocks;
    std::vector<State> states;
    std::vector<Batch> batches;
    std::int32_t under_way = 0;                    // transfers
    std::int32_t wanted = 0;                       // of these, those that are not passed
    std::int32_t waits = 0;                        // plans in which the front waited for memory
    PagingWork all;                                // all its blocks
    PagingRate rate;                               // of its own loads
    TimePoint counted_from;                        // the last plan with loads under way
    std::array<std::int32_t, kTierLevels> came{};  // blocks since then
    std::int32_t came_full = 0;                    // of them, those of groups without a window
  };

  const One* find(std::int32_t slot) const;
  One* find(std::int32_t slot);
  bool slides(std::int32_t group) const {
    return kv_.options().group_windows[static_cast<std::size_t>(group)] > 0;
  }
  std::int32_t seen_from(std::int32_t end, std::int32_t group) const;
  bool ready(const One& one, std::int32_t block) const;
  std::int32_t next_takeover(const One& one, std::int32_t from) const;
  std::int32_t num_loading(const One& one) const;
  std::int32_t front_share(const One& one, std::int32_t gap) const;
  void ask(One& one, std::int32_t count, TransferId& next_id, BatchPlan& plan);
  bool ask_block(One& one, std::int32_t block, Batch& batch, TransferId& next_id, BatchPlan& plan);
  void pass(One& one, std::int32_t begun_blocks);
  void end_entry(One& one, std::size_t entry, const TransferResult& result);
  std::int32_t border_behind(std::int32_t position) const {
    return (position + kv_.block_size() - 1) / kv_.block_size();
  }
  std::int32_t least_blocks() const { return border_behind(least_tokens_); }

  KvManager& kv_;
  PagingCosts& costs_;
  std::int32_t least_tokens_;
  std::int32_t num_full_ = 0;  // groups without a window
  std::vector<One> all_;
  std::int32_t num_under_way_ = 0;
  std::int32_t num_held_ = 0;
  std::vector<PagedBlock> taken_;  // scratch
};

}  // namespace sluice
