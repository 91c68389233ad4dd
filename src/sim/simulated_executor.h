// SimulatedExecutor: the Executor of the simulator. A step takes the time of StepCost, on a clock
// that its owner advances. Every row with logits gets the same token.
// Owner: a replica. Threads: one. A step allocates nothing after warm-up.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "scheduler/executor.h"
#include "sim/hardware.h"
#include "sim/pipeline.h"
#include "sim/step_cost.h"

namespace sluice {

// The token of every row. It ends no sequence; the workload sets the lengths.
inline constexpr TokenId kSimulatedToken = 1;

// The result of a step: one token for each row that wants logits. `out` is cleared first.
void answer_step(const BatchPlan& plan, StepResult& out);

class SimulatedExecutor final : public Executor {
 public:
  // `transfers`: the time of adapter loads. `tier`: that of blocks to and from the tier below.
  // `jitter`: the largest relative deviation of a step's time. REQUIRES: cost outlives it.
  explicit SimulatedExecutor(StepCost& cost, double jitter = 0, std::uint64_t seed = 0,
                             const TransferCost& transfers = {}, const TierCost& tier = {});

  // The number of stages.
  int max_in_flight() const override;
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;
  // The transfers that are over at the time of set_now().
  Status poll(std::vector<TransferResult>& completed) override;

  // Sets the time of the next submit() or poll(). REQUIRES: `now` never decreases and is not before
  // ready_at().
  void set_now(Duration now) { now_ = now; }
  Duration ready_at() const { return pipeline_.ready_at(); }
  // The end of the oldest submitted step. REQUIRES: a step waits for collect().
  Duration done_at() const { return flights_[oldest_].done; }
  // The end of the oldest transfer that is not reported; nothing when there is none.
  std::optional<Duration> transfer_done_at() const;
  std::int32_t in_flight() const { return pipeline_.in_flight(); }
  const PipelineTimes& times() const { return pipeline_.times(); }

 private:
  struct Flight {
    const BatchPlan* plan = nullptr;
    Duration done{0};
  };

  // Adapters, blocks that are loaded and blocks that are saved each have a direction of a link.
  static constexpr std::size_t kLanes = 3;

  struct Transfer {
    TransferId id = 0;
    std::size_t lane = 0;
    Duration done{0};
  };

  void start_transfers(const BatchPlan& plan);
  void delay_blocks(Duration by);
  void sort_transfers();

  StepCost& cost_;
  TransferCost transfer_cost_;
  TierCost tier_cost_;
  double jitter_;
  SplitMix64 random_;
  Pipeline pipeline_;
  std::vector<Flight> flights_;  // a ring
  std::size_t oldest_ = 0;
  std::vector<Duration> stages_;
  Duration now_{0};
  std::vector<Transfer> transfers_;  // not reported, in order of their end
  std::array<Duration, kLanes> lane_free_{};
};

}  // namespace sluice
