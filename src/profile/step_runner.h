// StepRunner: runs steps of a given shape on an Executor and times them. It makes the plans itself,
// without scheduler and requests. So it measures the code that serves, on any device; in tests, an
// executor with a known law.
// Owner: the caller that measures. Threads: the executor's. Its slots and blocks are the runner's
// alone.
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
  KvOptions kv;                 // its max_num_seqs and max_model_len hold for steps too
  std::int32_t max_tokens = 0;  // per step
  std::int32_t vocab_size = 0;
};

class StepRunner {
 public:
  // REQUIRES: executor and clock outlive the runner; the executor has run nothing yet.
  StepRunner(const StepLimits& limits, Executor& executor, const Clock& clock);

  // Writes every KV block once, so that contexts are read from memory and not from the one page
  // of zeros that untouched memory is.
  Status fill_kv();

  // Rows, tokens, contexts and blocks suffice for the shape.
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
