// StepRunner: runs steps of a given shape on an Executor and times them. It makes the plans itself,
// without scheduler and requests. So it measures the production executor on any device, or in tests
// an executor with a known cost formula.
// Owner: the caller that measures. Threads: the executor's. The runner has exclusive use of the
// executor's slots and blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/rng.h"
#include "kv/kv_manager.h"
#include "profile/machine_profile.h"
#include "request/request.h"
#include "request/sequence.h"
#include "scheduler/batch_plan.h"
#include "scheduler/executor.h"

namespace sluice {

// The limits of the executor.
struct StepLimits {
  KvOptions kv;                 // max_num_seqs and max_model_len limit steps too
  std::int32_t max_tokens = 0;  // per step
  std::int32_t vocab_size = 0;
};

class StepRunner {
 public:
  // REQUIRES: executor and clock outlive the runner; the executor has run nothing yet.
  StepRunner(const StepLimits& limits, Executor& executor, const Clock& clock);

  // Writes every KV block once, so that contexts are read from memory and not from the shared zero
  // page.
  Status fill_kv();

  // Whether rows, tokens, contexts and blocks suffice for the shape.
  bool can_run(const StepShape& shape) const;

  // The time from submit to the result. REQUIRES: can_run. An executor's error is final.
  Result<Duration> run(const StepShape& shape);

 private:
  Result<Duration> run_plan();
  void add_row(std::int32_t slot, std::int32_t context, std::int32_t count, bool logits);
  void take_blocks(std::int32_t slot, std::int32_t context, std::int32_t count);
  void release_all();

  StepLimits limits_;
  Executor& executor_;
  const Clock& clock_;
  KvManager kv_;
  SplitMix64 random_;
  Request request_;
  std::vector<Sequence> sequences_;       // by slot
  std::vector<std::uint8_t> assigned_;    // by slot
  std::vector<std::int32_t> busy_slots_;  // of the plan
  BatchPlan plan_;
  StepResult result_;
};

}  // namespace sluice
