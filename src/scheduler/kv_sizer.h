// KvSizer: decides how much KV memory there is. It reads ResourceView before each plan, asks for
// growth ahead of need, and returns memory when the engine is idle or its limit falls. It decides
// sizes only: KvManager owns the blocks, the scheduler preempts.
//
// When blocks run out, the order is: free blocks, growth, eviction of cached blocks, preemption.
// - Growth. A block is fresh when it is free, unpromised and not cached. The plan asks for growth
//   when fewer than `reserve` blocks are fresh, or when a row or an admission lacks blocks. Growth
//   adds whole chunks, one at least. An admission waits for growth rather than evict. A row evicts
//   rather than wait, and waits rather than preempt. The reserve makes both rare.
// - Refusal. After a refused growth, eviction and preemption follow. A plan asks for growth again
//   kGrowthRetry after the refusal at the earliest.
// - Idle release. When no request has arrived and no sequence has ended for `idle_release`, cached
//   blocks are dropped, held blocks move down by copies (at most kMovesPerPlan blocks, and
//   kChunksMovedPerPlan chunks, in a plan), and the rest is returned. Held blocks, the reserve and
//   the initial memory are kept, in whole chunks. A new need for blocks ends the release.
// - Limit. Blocks at or above ResourceView::kv_limit_blocks leave service as soon as all held
//   blocks fit below; the scheduler preempts until they do.
//
// With KvOptions::chunk_blocks = 0 memory is fixed: no growth and no release.
// Owner: the scheduler's state. Threads: the engine's. Allocation: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "kv/kv_manager.h"
#include "scheduler/batch_plan.h"
#include "scheduler/resource_view.h"

namespace sluice {

class KvSizer {
 public:
  static constexpr Duration kGrowthRetry = std::chrono::seconds(1);
  static constexpr std::int32_t kMovesPerPlan = 64;
  static constexpr std::int32_t kChunksMovedPerPlan = 2;

  // `idle_release`: 0 = never. REQUIRES: kv outlives this.
  KvSizer(KvManager& kv, Duration idle_release);

  // A request arrived, or a sequence ended: idle time counts from the next plan.
  void note_activity() { active_ = true; }

  // Before a plan: reads which growth was backed and which was refused.
  void begin(TimePoint now, const ResourceView& resources);

  // Whether more blocks are held or promised than the limit allows. The caller admits no sequence
  // and preempts the newest ones until this is false, then calls apply_limit().
  bool over_limit() const { return kv_.num_held_blocks() >= limit_; }
  // Takes blocks at or above the limit out of service. REQUIRES: !over_limit().
  void apply_limit();

  // Ends an idle release because blocks are needed again. True when there are more blocks now.
  bool stop_release();

  // Whether growth may supply blocks that are lacking.
  bool can_grow() const { return can_grow_; }
  // The most usable blocks that this engine can have under its limit.
  std::int32_t most_usable_blocks() const { return limit_ - 1; }
  // The most usable blocks that one sequence may need, under the limit of now and under none.
  std::int32_t most_blocks_of_a_sequence() const { return most_of_a_sequence(limit_); }
  std::int32_t most_blocks_ever() const { return most_of_a_sequence(kv_.options().max_blocks); }
  // A row or an admission lacks `blocks` fresh blocks.
  void want(std::int32_t blocks) { wanted_ = std::max(wanted_, blocks); }

  // After the rows are planned: adds growth, moves and the return of memory to the plan. The plan
  // asks for growth when fewer than `reserve` blocks are fresh.
  void finish(TimePoint now, std::int32_t reserve, BatchPlan& plan);

  // When plan() should be called for idle release, although nothing waits or runs.
  std::optional<TimePoint> wake_at() const;

  void check_integrity() const;

 private:
  // A minimum that is never lent is there under every limit, and no more is promised.
  std::int32_t most_of_a_sequence(std::int32_t limit) const {
    const std::int32_t least = kv_.options().least_blocks;
    return (least > 0 ? least : limit) - 1;
  }
  std::int32_t whole_chunks(std::int64_t blocks) const;
  void grow(TimePoint now, std::int32_t missing, BatchPlan& plan);
  void begin_release(std::int32_t reserve);
  void move_and_return(BatchPlan& plan);

  KvManager& kv_;
  Duration idle_release_;
  std::int32_t backed_;  // as the executor reports
  std::int32_t limit_;   // of blocks in service, the null block included
  std::int32_t asked_;   // the last BatchPlan::kv_blocks
  std::int32_t wanted_ = 0;
  bool can_grow_ = false;
  bool releasing_ = false;  // idle: blocks above the end move down, then memory is returned
  bool released_ = false;   // since the last activity
  bool active_ = true;
  TimePoint quiet_since_;
  TimePoint asked_at_;
  std::optional<TimePoint> refused_at_;
};

}  // namespace sluice
