// FakeExecutor: runs plans on a FakeModel with a simulated KV memory. It CHECKs every promise that
// BatchPlan makes to an executor: tables, copies, slots, positions, and which row may write which
// block. So scheduler and engine are tested without a model or a device.
// Threads: one. A step runs when it is submitted; collect() returns the results in order.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kv/kv_manager.h"
#include "scheduler/executor.h"
#include "tests/support/fake_model.h"

namespace sluice {

class FakeExecutor final : public Executor {
 public:
  // `options`: those of the KvManager whose blocks the plans name. REQUIRES: `model` outlives this.
  FakeExecutor(const FakeModel& model, const KvOptions& options, int max_in_flight);

  int max_in_flight() const override { return max_in_flight_; }
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;

  // The work of a device that computes rows in multiples of 16.
  ComputedWork computed_work() const override { return computed_work_; }

  int num_in_flight() const { return static_cast<int>(in_flight_); }

 private:
  struct Slot {
    Request request;  // a copy: the sequence may be gone while a step in flight names the slot
    SequenceId sequence = 0;
    std::int32_t choice = 0;
    TokenId last_token = -1;
  };

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  BlockId& entry(std::int32_t slot, std::int32_t group, std::int32_t block);
  std::uint64_t& content(BlockId block, std::int32_t offset);

  void assign(const SlotAssignment& assignment);
  void apply_block_changes(const BatchPlan& plan);
  void check_writes(const BatchPlan& plan);
  void run_row(const BatchPlan& plan, const PlanRow& row, StepResult& out);
  std::uint64_t seen_by(std::int32_t slot, std::int32_t position, std::int32_t end);
  void write_contents(std::int32_t slot, std::int32_t position, TokenId token);
  bool sample(const PlanRow& row, std::int32_t position, std::int32_t output_index, TokenId& token);

  const FakeModel& model_;
  KvOptions options_;
  std::int32_t max_blocks_per_seq_;
  int max_in_flight_;
  std::vector<std::uint64_t> contents_;  // [blocks][block_size]
  std::vector<BlockId> tables_;          // [slots][groups][max_blocks_per_seq]
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> written_;    // by block and offset: the step that wrote it last, + 1
  std::vector<std::uint64_t> row_step_;   // by slot: the step of its last row, + 1
  std::vector<std::uint64_t> copy_step_;  // by block: the step that copied from or to it, + 1
  std::vector<StepResult> results_;       // a ring of max_in_flight
  std::size_t oldest_ = 0;
  std::size_t in_flight_ = 0;
  ComputedWork computed_work_;
};

}  // namespace sluice
