// SimulatedExecutor: the Executor of the simulator. A step takes as long as StepCost says, on a
// clock that its owner moves; every row that wants logits gets a token, always the same one.
// Owner: a replica. Threads: one. A step allocates nothing after warm-up.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "scheduler/executor.h"
#include "sim/hardware.h"
#include "sim/pipeline.h"
#include "sim/step_cost.h"

namespace sluice {

// The token of every row: one that ends no sequence. Lengths are the workload's.
inline constexpr TokenId kSimulatedToken = 1;

// The result of a step: one token for each row that wants logits. `out` is cleared first.
void answer_step(const BatchPlan& plan, StepResult& out);

class SimulatedExecutor final : public Executor {
 public:
  // `transfers`: the time of adapter loads. `jitter`: each step takes up to so much more or less,
  // relative. REQUIRES: cost outlives it.
  explicit SimulatedExecutor(StepCost& cost, double jitter = 0, std::uint64_t seed = 0,
                             const TransferCost& transfers = {});

  // As many as there are stages.
  int max_in_flight() const override;
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;
  // The transfers that are over at the time of set_now().
  Status poll(std::vector<TransferResult>& completed) override;

  // When the next submit() or poll() happens. REQUIRES: never goes back, and is at or behind
  // ready_at().
  void set_now(Duration now) { now_ = now; }
  Duration ready_at() const { return pipeline_.ready_at(); }
  // When the oldest submitted step is over. REQUIRES: one waits.
  Duration done_at() const { return flights_[oldest_].done; }
  // When the oldest transfer that is not reported is over; nothing when there is none.
  std::optional<Duration> transfer_done_at() const;
  std::int32_t in_flight() const { return pipeline_.in_flight(); }
  const PipelineTimes& times() const { return pipeline_.times(); }

 private:
  struct Flight {
    const BatchPlan* plan = nullptr;
    Duration done{0};
  };

  struct Transfer {
    TransferId id = 0;
    Duration done{0};
  };

  void start_transfers(const BatchPlan& plan);

  StepCost& cost_;
  TransferCost transfer_cost_;
  double jitter_;
  SplitMix64 random_;
  Pipeline pipeline_;
  std::vector<Flight> flights_;  // a ring
  std::size_t oldest_ = 0;
  std::vector<Duration> stages_;
  Duration now_{0};
  std::vector<Transfer> transfers_;  // not reported, in order of their end
  Duration link_free_{0};
};

}  // namespace sluice
