#include "sim/pipeline.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {
namespace {

std::int32_t prefill_tokens(const BatchPlan& plan) {
  std::int32_t sum = 0;
  for (const PlanRow& row : plan.rows) {
    if (row.query_len > 1 || row.num_logits == 0) sum += row.query_len;
  }
  return sum;
}

}  // namespace

PipelineTimes& PipelineTimes::operator+=(const PipelineTimes& other) {
  busy += other.busy;
  prefill_lengths += other.prefill_lengths;
  prefill_decode += other.prefill_decode;
  context += other.context;
  link += other.link;
  unfilled += other.unfilled;
  return *this;
}

Pipeline::Pipeline(std::int32_t num_stages)
    : free_(static_cast<std::size_t>(num_stages)), batches_(static_cast<std::size_t>(num_stages)) {}

const Pipeline::Batch& Pipeline::oldest() const {
  const std::size_t size = batches_.size();
  return batches_[(newest_ + size + 1 - static_cast<std::size_t>(in_flight_)) % size];
}

// Idle time beyond the link's is caused by the difference between the two micro-batches.
void Pipeline::count_bubble(const Batch& a, const Batch& b, Duration idle, Duration send) {
  const Duration link = std::min(idle, send);
  times_.link += link;
  idle -= link;
  if ((a.prefill_tokens > 0) != (b.prefill_tokens > 0)) {
    times_.prefill_decode += idle;
  } else if (a.prefill_tokens != b.prefill_tokens) {
    times_.prefill_lengths += idle;
  } else {
    times_.context += idle;
  }
}

// The first stage waited until the pipeline accepted a micro-batch or until there was work.
void Pipeline::count_idle_first(Duration now) {
  const Duration idle = now - free_.front();
  const Duration waited =
      gated_ ? std::clamp(gate_.done - free_.front(), Duration(0), idle) : Duration(0);
  count_bubble(gate_, newest(), waited, last_send_);
  times_.unfilled += idle - waited;
}

Duration Pipeline::start(const BatchPlan& plan, Duration now, std::span<const Duration> stages,
                         Duration send) {
  CHECK(now >= ready_at() && in_flight_ < static_cast<std::int32_t>(free_.size()));
  Batch batch;
  batch.prefill_tokens = prefill_tokens(plan);
  if (started_) count_idle_first(now);
  Duration begin = now;
  for (std::size_t s = 0; s < free_.size(); ++s) {
    const Duration previous_begin = begin;
    if (s > 0) {
      begin = std::max(free_[s - 1] + send, free_[s]);
      // A stage that was idle before the previous stage began was not waiting for it.
      const Duration idle = begin - free_[s];
      const bool followed = started_ && previous_begin < free_[s];
      if (followed) {
        count_bubble(newest(), batch, idle, send);
      } else if (started_) {
        times_.unfilled += idle;
      }
    }
    times_.busy += stages[s];
    free_[s] = begin + stages[s];
  }
  batch.done = free_.back();
  newest_ = (newest_ + 1) % batches_.size();
  batches_[newest_] = batch;
  ++in_flight_;
  gated_ = in_flight_ == static_cast<std::int32_t>(free_.size());
  if (gated_) gate_ = oldest();
  last_send_ = send;
  started_ = true;
  return batch.done;
}

void Pipeline::finish() {
  CHECK(in_flight_ > 0);
  --in_flight_;
}

}  // namespace sluice
