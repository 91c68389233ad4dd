// ThreadedEngineLoop: an EngineLoop whose engine runs on a thread of its own in this process. The
// thread never parses, renders, writes to disk or waits for a client. It calls `wake` as soon as a
// step's tokens are computed, then commits the step and appends the results to the pending batch.
// The consumer's thread takes about as long to wake up as the engine takes to commit.
//
// Owner: the command. Threads: start() and stop() from the owner's; the rest as EngineLoop says.
// `wake` is called on the engine's thread. Limits: Options::max_requests; take() spins for a step
// that is being committed, at most kCommitPatience.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/engine_loop.h"
#include "server/step_gate.h"

namespace sluice {

class ThreadedEngineLoop final : public EngineLoop {
 public:
  static constexpr std::chrono::microseconds kCommitPatience{100};

  struct Options {
    std::int32_t max_requests =
        1024;  // unfinished requests, running or waiting; a further one is refused
    double pin_share = PinTable::kDefaultShare;  // of KV memory that pins may need
  };

  // The result of when_idle().
  struct IdleWork {
    // A request of the operator's own (kFirstOperatorId). It runs beside clients', and its outputs
    // go nowhere.
    // when_idle() is called again at the next idle time.
    std::optional<Request> request;
    // Without a request: when_idle() is called again after this long, when idle. Absent: never.
    std::optional<Duration> again = std::nullopt;
  };
  using WhenIdle = std::function<Result<IdleWork>()>;

  // The time without a request after which `when_idle` is called.
  static constexpr std::chrono::seconds kIdle{1};

  // `when_idle`: called on the engine's thread when nothing has run for kIdle; may be empty. Its
  // error makes the state kFailed.
  // `gate`: each step waits for it; null: no step waits. It outlives this, and must let the thread
  // pass while this stops. Requests that come during the wait are in the step after it.
  ThreadedEngineLoop(const Options& options, const Clock& clock, std::function<void()> wake,
                     WhenIdle when_idle = {}, StepGate* gate = nullptr);
  ~ThreadedEngineLoop() override;  // stops
  ThreadedEngineLoop(const ThreadedEngineLoop&) = delete;
  ThreadedEngineLoop& operator=(const ThreadedEngineLoop&) = delete;

  // Starts the thread, which first calls `make`: loading a model takes seconds and happens on the
  // engine's thread. If `make` fails, its error makes the state kFailed.
  void start(std::function<Result<std::unique_ptr<Engine>>()> make);
  // Cancels everything, ends the thread, and waits for it. Reports the cancelled choices. The
  // state becomes kStopped, or stays kFailed. A second call does nothing.
  void stop();

  // Limits the engine's KV memory to `bytes` from the next step on, two blocks at least; 0: to what
  // it was made with. Memory beyond it goes back to the system, also while nothing runs. Sequences
  // that fit no longer wait for the others, or end with FinishReason::kNoMemory.
  // EngineGauges::kv_limit_blocks shows the limit once the engine keeps to it.
  void limit_kv(std::int64_t bytes);
  // The engine's state after its last step; any thread.
  EngineGauges gauges() const;

  Status submit(Request request) override;
  void cancel(RequestId id) override;
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason) override;
  void ask_progress() override;
  Status supports_pins() const override;
  Status ask_pins(PinQuestion question) override;
  void take(OutputBatch& batch) override;
  std::int32_t max_requests() const override;
  EngineState state() const override;
  std::optional<Error> failure() const override;
  std::int32_t unfinished_requests() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
