// StepTrace: how long each op of a step takes, as a Chrome trace. It keeps two steps of a run: the
// largest with a prompt's tokens and the largest without, of equals the latest, so that neither
// first touches nor thin batches show.
//
// An executor that traces (TraceTap) runs the ops of each step one by one, from the same lists as
// its graphs, so answers have the same bits. A traced step costs two readings of the clock for each
// op; without a trace a step costs nothing.
// Owner: a command; it outlives its use. Threads: the engine's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/op_list.h"

namespace sluice {

struct TracedOp {
  const char* name = nullptr;
  std::string shape;
  Duration begin{0};  // since the trace was made
  Duration length{0};
};

struct TracedStep {
  std::int32_t tokens = 0;
  std::int32_t seqs = 0;
  Duration begin{0};
  Duration length{0};
  std::vector<TracedOp> ops;
};

class StepTrace {
 public:
  explicit StepTrace(const Clock& clock);

  // Runs the ops of a step, on a device that runs them at once. `has_prompt`: some of its tokens
  // are of a prompt.
  void run(const OpList& list, Ops& ops, std::int32_t tokens, std::int32_t seqs, bool has_prompt);

  const std::optional<TracedStep>& prompt_step() const { return prompt_; }
  const std::optional<TracedStep>& decode_step() const { return decode_; }

  // The steps in the trace event format (JSON), which chrome://tracing and ui.perfetto.dev open:
  // each step is an event around the events of its ops; times are in microseconds.
  std::string json() const;

 private:
  const Clock& clock_;
  TimePoint start_;
  std::vector<Duration> ends_;  // of the ops of the step that runs
  std::optional<TracedStep> prompt_;
  std::optional<TracedStep> decode_;
};

// The executor's end.
class TraceTap {
 public:
  virtual ~TraceTap() = default;
  // Traces the steps from now on. Null: not any more. kUnsupported on a device that runs ops while
  // the host goes on.
  virtual Status trace_steps(StepTrace* trace) = 0;
};

}  // namespace sluice
