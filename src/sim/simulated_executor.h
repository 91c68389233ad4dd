// SimulatedExecutor: the Executor of the simulator. A step takes as long as StepCost says, on a
// clock that its owner moves; every row that wants logits gets a token, always the same one.
// Owner: a replica. Threads: one. A step allocates nothing after warm-up.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "scheduler/executor.h"
#include "sim/pipeline.h"
#include "sim/step_cost.h"

namespace sluice {

// The token of every row: one that ends no sequence. Lengths are the workload's.
inline constexpr TokenId kSimulatedToken = 1;

// What a step gives: one token for each row that wants logits. `out` is cleared first.
void answer_step(const BatchPlan& plan, StepResult& out);

class SimulatedExecutor final : public Executor {
 public:
  // `jitter`: each step takes up to so much more or less, relative. REQUIRES: cost outlives it.
  explicit SimulatedExecutor(StepCost& cost, double jitter = 0, std::uint64_t seed = 0);

  // As many as there are stages.
  int max_in_flight() const override;
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;

  // When the next submit() happens. REQUIRES: never goes back, and is at or behind ready_at().
  void set_now(Duration now) { now_ = now; }
  Duration ready_at() const { return pipeline_.ready_at(); }
  // When the oldest submitted step is over. REQUIRES: one waits.
  Duration done_at() const { return flights_[oldest_].done; }
  std::int32_t in_flight() const { return pipeline_.in_flight(); }
  const PipelineTimes& times() const { return pipeline_.times(); }

 private:
  struct Flight {
    const BatchPlan* plan = nullptr;
    Duration done{0};
  };

  StepCost& cost_;
  double jitter_;
  SplitMix64 random_;
  Pipeline pipeline_;
  std::vector<Flight> flights_;  // a ring
  std::size_t oldest_ = 0;
  std::vector<Duration> stages_;
  Duration now_{0};
};

}  // namespace sluice
