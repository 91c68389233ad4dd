// EngineLoop: the engine's own thread. Requests, cancellations and ended choices go in through a
// bounded inbox; what each step produced comes out in batches. The thread never parses, renders,
// logs to disk or waits for a client: it appends to the pending batch and calls `wake` once for
// each batch. It does so as soon as a step's tokens are there: the consumer's thread takes about as
// long to wake up as the engine to commit the step.
//
// Threads: submit(), cancel(), end_choice(), take(), state() from any thread, never blocking longer
// than a copy (take() also for a commit, at most kCommitPatience); start() and stop() from the
// owner's. `wake` is called on the engine's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "request/request.h"

namespace sluice {

// What became of one choice in one step. Tokens and logprobs are ranges of the batch's arrays.
struct OutputEvent {
  RequestId request = 0;
  std::int32_t choice = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::int32_t cached_prompt_tokens = 0;
  std::uint32_t first_token = 0;
  std::uint32_t num_tokens = 0;
  std::uint32_t first_logprob = 0;
  std::uint32_t num_logprobs = 0;
  TimePoint time;             // when the step was committed
  TimePoint first_scheduled;  // when the choice first ran; zero: never
};

// A request that the engine refused: it could never run.
struct RefusedRequest {
  RequestId request = 0;
  Error error;
};

// One step, for metrics.
struct StepRecord {
  TimePoint end;
  Duration duration{0};
  std::int32_t tokens = 0;  // computed in it
};

// The engine's state after its last step.
struct EngineGauges {
  std::int32_t running = 0;  // sequences
  std::int32_t waiting = 0;
  std::int32_t kv_blocks = 0;  // in all
  std::int32_t kv_blocks_used = 0;
  std::int32_t kv_blocks_cached = 0;  // free, but still findable
  std::int64_t prefix_queried_tokens = 0;
  std::int64_t prefix_hit_tokens = 0;
  EngineStats totals;
};

struct OutputBatch {
  std::vector<OutputEvent> events;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::vector<RefusedRequest> refused;
  std::vector<StepRecord> steps;
  std::vector<RequestProgress> progress;  // when has_progress: it was asked for
  bool has_progress = false;
  EngineGauges gauges;

  std::span<const TokenId> tokens_of(const OutputEvent& event) const {
    return std::span(tokens).subspan(event.first_token, event.num_tokens);
  }
  std::span<const TokenLogprob> logprobs_of(const OutputEvent& event) const {
    return std::span(logprobs).subspan(event.first_logprob, event.num_logprobs);
  }
  void clear();  // keeps capacity
};

enum class EngineState : std::uint8_t { kLoading, kReady, kFailed, kStopped };

class EngineLoop {
 public:
  // take() waits so long, on its core, for a step that is being committed.
  static constexpr std::chrono::microseconds kCommitPatience{100};

  // Requests that may be unfinished at once, running or waiting; one more is refused.
  struct Options {
    std::int32_t max_requests = 1024;
  };

  EngineLoop(const Options& options, const Clock& clock, std::function<void()> wake);
  ~EngineLoop();  // stops
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Starts the thread, which first calls `make`: loading a model takes seconds, and everything of
  // it happens on the engine's thread. Its error makes the state kFailed. `wake` is called when the
  // state changes.
  void start(std::function<Result<std::unique_ptr<Engine>>()> make);

  // Errors: kResourceExhausted (full, says how many wait), kUnavailable (loading, failed, stopped).
  // The id must be new: an id is never used twice.
  Status submit(Request request);
  // A request that no step has seen yet will run in none. Its choices are reported kCancelled.
  // Unknown and finished ones are ignored.
  void cancel(RequestId id);
  // REQUIRES: the choice has reported a token.
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason);
  // The next batch carries the progress of all unfinished requests. Nothing comes before the state
  // is kReady; an engine that fails or stops first answers with none.
  void ask_progress();

  // Swaps everything reported since the last call into `batch` (which is cleared first). Nothing
  // may have been: then `wake` is called again when something is.
  void take(OutputBatch& batch);

  std::int32_t max_requests() const;
  EngineState state() const;
  // Why the state is kFailed.
  std::optional<Error> failure() const;
  std::int32_t unfinished_requests() const;

  // Cancels everything, ends the thread, and waits for it; what was cancelled is reported. The
  // state is kStopped then, or stays kFailed. Again: does nothing.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
