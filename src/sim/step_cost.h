// StepCost: the time that a planned step takes in each stage of a pipeline. Two implementations:
// the hardware model (cost_model.h) and a measured profile. Pure: the same plan costs the same.
// Threads: one at a time (implementations keep tables).
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "scheduler/batch_plan.h"

namespace sluice {

class StepCost {
 public:
  virtual ~StepCost() = default;
  virtual std::int32_t num_stages() const = 0;
  // Writes the time of each stage. REQUIRES: stages.size() == num_stages().
  virtual void stage_times(const BatchPlan& plan, std::span<Duration> stages) = 0;
  // The time from the end of a stage until the next one can start. 0 with one stage.
  virtual Duration send_time(const BatchPlan& plan) const = 0;
  // The time in a step for which the ranks of a stage use the link between them.
  virtual Duration collective_time(const BatchPlan& /*plan*/) { return Duration(0); }
};

// The time of a whole step in an idle pipeline, from its start to its tokens.
Duration step_latency(StepCost& cost, const BatchPlan& plan);

// A plan whose cost can be computed: `decodes` sequences with `decode_context` tokens in KV and one
// chunk of `chunk` tokens after `chunk_context` (no chunk if `chunk` is 0).
BatchPlan sample_step(std::int32_t decodes, std::int32_t decode_context, std::int32_t chunk,
                      std::int32_t chunk_context);

}  // namespace sluice
