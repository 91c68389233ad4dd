// FakeExecutor: runs plans on a FakeModel with a simulated KV memory, simulated adapter slots and a
// simulated tier below the memory, if KvOptions has one.
// It CHECKs every promise that BatchPlan makes to an executor: tables, copies, slots, positions,
// which row may write which block, order of transfers, blocks without memory. So scheduler and
// engine are tested without a model or a device. Threads: one. A step runs when it is submitted;
// collect() returns the results in order. A transfer ends at the next poll(), or with
// hold_transfers() when the test ends it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/device_counters.h"
#include "kv/kv_manager.h"
#include "kv/stream_shape.h"
#include "scheduler/executor.h"
#include "tests/support/fake_model.h"

namespace sluice {

class FakeExecutor final : public Executor, public DeviceMeter {
 public:
  // `options`: those of the KvManager whose blocks the plans name. REQUIRES: `model` outlives this.
  FakeExecutor(const FakeModel& model, const KvOptions& options, int max_in_flight);

  int max_in_flight() const override { return max_in_flight_; }
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;

  Status poll(std::vector<TransferResult>& completed) override;
  // Returns at once, as if time had passed; a test that holds transfers ends them itself.
  Status wait_for_transfer(Duration at_most) override;
  std::int32_t kv_backed_blocks() const override { return backed_; }
  bool kv_growth_failed() const override { return growth_failed_; }

  bool tier_accepts_saves() const override { return accepts_saves_; }
  void accept_saves(bool accept) { accepts_saves_ = accept; }
  // The pages with a block, in the order of saving. Another executor can begin with them.
  std::vector<PagedBlock> saved_pages() const;
  void take_tier(FakeExecutor& other);
  // The tier drops this block, for room. REQUIRES: its page is among saved_pages().
  void drop_page(const PagedBlock& block);
  void take_lost_pages(std::vector<PagedBlock>& lost) override;

  // Transfers stay under way until end_transfer().
  void hold_transfers() { holds_transfers_ = true; }
  // Under way and not ended, oldest first.
  const std::vector<PlanTransfer>& transfers() const { return transfers_; }
  // A load that fails finds a damaged page, or (`unreadable`) one that a later load may read.
  void end_transfer(std::size_t index, bool failed, bool unreadable = false);
  // Growth is refused from now on, or granted again.
  void refuse_growth(bool refuse) { refuses_growth_ = refuse; }
  // Every transfer that ends by itself fails.
  void fail_transfers(bool fail) { fails_transfers_ = fail; }
  int waits() const { return waits_; }  // calls of wait_for_transfer
  // Plans may have streamed rows of this shape. Their contents lie outside of the blocks.
  void stream(const StreamShape& shape) { stream_ = shape; }
  void end_stream(SequenceId sequence) override;
  // Up to `most` of the tokens that the model samples next come with the sampled one, as if a
  // grammar forced them. REQUIRES: one step in flight at most.
  void force_tokens(std::uint64_t most) { max_forced_ = most; }

  DeviceTime device_time() const override { return {}; }
  // The work of a device that computes rows in multiples of 16.
  ComputedWork computed_work() const override { return computed_work_; }

  int num_in_flight() const { return static_cast<int>(in_flight_); }

 private:
  struct Slot {
    Request request;  // a copy: the sequence may be gone while a step in flight names the slot
    SequenceId sequence = 0;
    std::int32_t choice = 0;
    TokenId last_token = -1;
    std::int32_t adapter_slot = -1;
  };
  static constexpr std::int32_t kUndefined = -2;  // an adapter slot that is written or never was

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  BlockId& entry(std::int32_t slot, std::int32_t group, std::int32_t block);
  std::uint64_t& content(BlockId block, std::int32_t offset);
  std::uint64_t& stored(std::int32_t slot, std::int32_t group, std::int32_t position);
  void begin_streamed(const BatchPlan& plan);
  void begin_file(SequenceId sequence);
  void start_move(const PlanTransfer& transfer, const BatchPlan& plan);
  void end_move(const PlanTransfer& transfer, bool failed);

  void assign(const SlotAssignment& assignment);
  void apply_block_changes(const BatchPlan& plan);
  void check_writes(const BatchPlan& plan);
  void run_rows(const BatchPlan& plan);
  void start_transfers(const BatchPlan& plan);
  void start_paging(const PlanTransfer& transfer, const PagedBlock& block);
  void end_paging(const PlanTransfer& transfer, bool failed);
  void resize_kv(std::int32_t blocks);
  void run_row(const BatchPlan& plan, const PlanRow& row, StepResult& out);
  std::uint64_t seen_by(std::int32_t slot, std::int32_t position, std::int32_t end);
  void write_contents(std::int32_t slot, std::int32_t position, TokenId token);
  void force(const PlanRow& row, RowResult& result, StepResult& out);
  std::uint64_t seen_with(std::int32_t slot, std::int32_t position, std::int32_t end,
                          const std::vector<std::vector<std::uint64_t>>& extra);
  bool sample(const PlanRow& row, std::int32_t position, std::int32_t output_index, TokenId& token);

  const FakeModel& model_;
  KvOptions options_;
  std::int32_t max_blocks_per_seq_;
  int max_in_flight_;
  std::vector<std::uint64_t> contents_;  // [blocks][block_size]
  std::vector<BlockId> tables_;          // [slots][groups][max_blocks_per_seq]
  std::vector<Slot> slots_;
  std::uint64_t submitted_ = 0;           // plans
  std::vector<std::uint64_t> written_;    // by block and offset: the plan that wrote it last
  std::vector<std::uint64_t> row_step_;   // by slot: the plan of its last row
  std::vector<std::uint64_t> copy_step_;  // by block: the plan that copied from or to it
  std::vector<std::int32_t> adapters_;    // by adapter slot
  // A page of the tier; `contents` is empty while it has no block.
  struct Page {
    PagedBlock block;
    std::vector<std::uint64_t> contents;
    std::uint64_t saved = 0;  // counts saves
  };
  std::vector<Page> pages_;
  std::vector<PagedBlock> lost_pages_;                // not reported yet
  std::vector<PagedBlock> paging_;                    // under way
  std::vector<std::vector<std::uint64_t>> expected_;  // by transfer in paging_: a save's contents
  std::uint64_t num_saves_ = 0;
  bool accepts_saves_ = true;
  // Blocks that move between memory and the file of a stream, with what must be in memory until
  // then.
  struct Move {
    TransferId id = 0;
    PagedBlock block;
    std::vector<std::uint64_t> contents;
  };
  std::vector<Move> moves_;
  std::vector<PlanTransfer> transfers_;
  std::vector<TransferResult> completed_;
  TransferId last_transfer_ = 0;
  bool holds_transfers_ = false;
  bool fails_transfers_ = false;
  int waits_ = 0;
  std::uint64_t max_forced_ = 0;
  StreamShape stream_;
  bool runs_streamed_ = false;                        // the step that is run now
  bool streamed_is_new_ = false;                      // in its slot
  SequenceId streamed_sequence_ = 0;                  // the last one
  std::vector<std::vector<std::uint64_t>> streamed_;  // its contents, by group and position
  std::int32_t backed_ = 0;
  bool refuses_growth_ = false;
  bool growth_failed_ = false;
  std::vector<StepResult> results_;  // a ring of max_in_flight
  std::size_t oldest_ = 0;
  std::size_t in_flight_ = 0;
  ComputedWork computed_work_;
};

}  // namespace sluice
