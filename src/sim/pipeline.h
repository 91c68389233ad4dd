// Pipeline: computes when each stage runs each micro-batch, and why stages are idle between them.
// Micro-batches pass the stages in order; none overtakes another. Owner: the simulated executor.
// Threads: one. Allocates nothing after construction.
//
// The causes of idle time are those of the Sarathi-Serve paper (section 3.3) and two more: the link
// between stages, and a pipeline that is not full because there is too little load.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "scheduler/batch_plan.h"

namespace sluice {

// Sums over all stages.
struct PipelineTimes {
  Duration busy{0};
  Duration prefill_lengths{0};  // PB1: micro-batches of prompts, of different length
  Duration prefill_decode{0};   // PB2: one with prompts, one without
  Duration context{0};          // PB3: of the same kind, but with different context lengths
  Duration link{0};             // transfer of hidden states
  Duration unfilled{0};         // fewer micro-batches than stages

  Duration bubbles() const { return prefill_lengths + prefill_decode + context; }
  PipelineTimes& operator+=(const PipelineTimes& other);
};

class Pipeline {
 public:
  explicit Pipeline(std::int32_t num_stages);

  // Starts a micro-batch at `now`; returns when it leaves the last stage.
  // REQUIRES: now >= ready_at(), fewer than num_stages() are in flight.
  Duration start(const BatchPlan& plan, Duration now, std::span<const Duration> stages,
                 Duration send);
  // The oldest micro-batch has been collected.
  void finish();

  Duration ready_at() const { return free_.front(); }  // when the first stage is free
  std::int32_t in_flight() const { return in_flight_; }
  const PipelineTimes& times() const { return times_; }

 private:
  struct Batch {
    std::int32_t prefill_tokens = 0;
    Duration done{0};
  };

  void count_bubble(const Batch& a, const Batch& b, Duration idle, Duration send);
  void count_idle_first(Duration now);
  const Batch& newest() const { return batches_[newest_]; }
  const Batch& oldest() const;

  std::vector<Duration> free_;  // by stage: when its last micro-batch leaves it
  std::vector<Batch> batches_;  // a ring
  std::size_t newest_ = 0;
  std::int32_t in_flight_ = 0;
  bool started_ = false;
  Batch gate_;          // the micro-batch whose end lets the next one in
  bool gated_ = false;  // the last start filled the pipeline
  Duration last_send_{0};
  PipelineTimes times_;
};

}  // namespace sluice
