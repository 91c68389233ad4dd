// run_offline(): runs a workload on an engine in this process, without a server. The summary has
// the figures of the requests (serving_summary.h). StepTotals has those of the engine by kind of
// step, so that prefill and decode have figures of their own.
// Arrival times are not used: all requests of a batch arrive at once. One thread; blocks it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "loadgen/load_run.h"
#include "loadgen/prompt_maker.h"
#include "workload/serving_summary.h"
#include "workload/workload.h"

namespace sluice {

struct OfflineOptions {
  std::int64_t batch_size =
      0;  // requests; a batch starts when the previous one has ended; 0: one batch
  std::int64_t max_waiting = 64;  // requests in the engine's queue: prompts are made as needed
  // Indices that requests name in turn (-1: the base model); empty: all use the base model. The
  // caller keeps the adapters alive.
  std::vector<std::int32_t> adapters;
  double temperature = 0;
  std::uint64_t seed = 0;
  std::int64_t first_number = 0;  // of the first request's prompt
  Duration progress_every{0};     // 0: never
  std::function<void(const LoadProgress&)> progress;
  // Called before each step; true ends the run, and running requests stay in the summary as
  // unfinished. Empty: the run is never interrupted.
  std::function<bool()> interrupted;
};

// All steps of one kind. A token belongs to a prompt or is the newest one of an answer.
struct StepTotals {
  std::int64_t steps = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  Duration time{0};
  DeviceTime device;  // zero on the CPU
  ComputedWork computed;

  // 0 without steps.
  double tokens_per_second() const { return ratio(tokens(), to_seconds(time)); }
  double tokens_per_step() const { return ratio(tokens(), static_cast<double>(steps)); }
  double step_ms() const { return ratio(to_milliseconds(time), static_cast<double>(steps)); }

 private:
  double tokens() const { return static_cast<double>(prefill_tokens + decode_tokens); }
  static double ratio(double over, double under) { return under > 0 ? over / under : 0; }
};

struct OfflineResult {
  ServingSummary summary;
  std::vector<Duration> latencies;  // of the batches that were not interrupted
  StepTotals prefill;               // steps with tokens of prompts only
  StepTotals decode;                // steps with newest tokens only
  StepTotals hybrid;                // steps with both
  std::int64_t preemptions = 0;
  std::int64_t not_started = 0;
  bool interrupted = false;
};

// REQUIRES: the engine has no requests. Errors are those of the engine, and of a request that it
// refuses.
Result<OfflineResult> run_offline(Engine& engine, const OfflineOptions& options,
                                  const Workload& workload, PromptMaker prompts,
                                  const Clock& clock);

}  // namespace sluice
