// EngineLoop: the interface between the server's event loop and an engine that runs elsewhere.
// Requests, cancellations and ended choices go in through a bounded inbox; the results of each step
// come out in batches. The engine may run on a thread (ThreadedEngineLoop) or, later, in another
// process: callers see no difference, and all data that crosses the interface is plain.
//
// Each implementation is made with a `wake` function. It calls `wake`, on any thread, once for each
// batch that is ready to take and at each change of state.
// Owner: the command, which also starts and stops the implementation.
// Threads: any. No call blocks for longer than it takes to copy its arguments or, for take(), to
// commit a step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/pin_table.h"
#include "request/request.h"

namespace sluice {

// The result of one choice in one step. Tokens and logprobs are ranges of the batch's arrays.
struct OutputEvent {
  RequestId request = 0;
  std::int32_t choice = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::int32_t cached_prompt_tokens = 0;
  std::uint32_t first_token = 0;
  std::uint32_t num_tokens = 0;
  std::uint32_t first_logprob = 0;
  std::uint32_t num_logprobs = 0;
  std::uint32_t first_prompt_logprob = 0;
  std::uint32_t num_prompt_logprobs = 0;
  std::uint32_t first_embedding = 0;
  std::uint32_t num_embedding = 0;
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

// The engine's state when it was last looked at: after each step and each move of a block.
struct EngineGauges {
  std::int32_t running = 0;  // sequences
  std::int32_t waiting = 0;
  std::int32_t kv_blocks = 0;  // in all
  std::int32_t kv_blocks_used = 0;
  std::int32_t kv_blocks_cached = 0;  // free, but still findable
  std::int32_t kv_blocks_backed = 0;  // that the system does not have, the null block included
  std::int32_t kv_limit_blocks = 0;   // Engine::set_kv_limit(); 0: none
  std::int32_t tier_pages = 0;        // of a tier below; 0: there is none
  std::int32_t tier_pages_saved = 0;  // those that hold a block
  std::int64_t tier_block_bytes = 0;
  TierLevels tier_levels;
  std::int64_t tier_memory_bytes = 0;  // of this machine, that the tier's blocks take
  bool tier_accepts_saves = false;
  std::int32_t pins = 0;
  std::int64_t pinned_blocks = 0;  // that the pins need
  std::int64_t prefix_queried_tokens = 0;
  std::int64_t prefix_hit_tokens = 0;
  EngineStats totals;

  bool operator==(const EngineGauges&) const = default;
};

enum class PinAction : std::uint8_t { kShow, kList, kRemove };

// A question about the pins of a tenant (engine/pin_table.h).
struct PinQuestion {
  std::uint64_t ticket = 0;  // the caller's, repeated in the answer
  PinAction action = PinAction::kShow;
  std::string tenant;
  std::string id;  // not for kList
};

// kShow and kRemove: the pin, or none if there is no such pin. kList: all of the tenant's.
struct PinAnswer {
  std::uint64_t ticket = 0;
  std::vector<PinStatus> pins;
};

struct OutputBatch {
  std::vector<OutputEvent> events;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::vector<PromptLogprob> prompt_logprobs;
  std::vector<float> embeddings;
  std::vector<RefusedRequest> refused;
  std::vector<StepRecord> steps;
  std::vector<RequestProgress> progress;  // if has_progress: the answer to ask_progress()
  bool has_progress = false;
  std::vector<PinResult> pins;  // made by requests whose end is in `events`
  std::vector<PinAnswer> pin_answers;
  EngineGauges gauges;

  std::span<const TokenId> tokens_of(const OutputEvent& event) const {
    return std::span(tokens).subspan(event.first_token, event.num_tokens);
  }
  std::span<const TokenLogprob> logprobs_of(const OutputEvent& event) const {
    return std::span(logprobs).subspan(event.first_logprob, event.num_logprobs);
  }
  std::span<const PromptLogprob> prompt_logprobs_of(const OutputEvent& event) const {
    return std::span(prompt_logprobs)
        .subspan(event.first_prompt_logprob, event.num_prompt_logprobs);
  }
  std::span<const float> embedding_of(const OutputEvent& event) const {
    return std::span(embeddings).subspan(event.first_embedding, event.num_embedding);
  }
  void clear();  // keeps capacity
};

enum class EngineState : std::uint8_t { kLoading, kReady, kFailed, kStopped };

class EngineLoop {
 public:
  virtual ~EngineLoop() = default;

  // Errors: kResourceExhausted (the inbox is full; the message has the numbers), kInvalidArgument
  // (too large to be sent to the engine's process), kUnavailable (loading, failed or stopped).
  // REQUIRES: the id was never used before.
  virtual Status submit(Request request) = 0;
  // A request for this function and adapter (Request::function, ::adapter) is being prepared, so
  // what it lacks may be started. It may never come. REQUIRES: the caller holds the adapter's
  // content during the call.
  virtual void expect(std::int32_t /*function*/, std::int32_t /*adapter*/) {}
  // Cancels a request. If no step has planned it yet, none will. Its choices are reported as
  // kCancelled. Unknown and finished requests are ignored.
  virtual void cancel(RequestId id) = 0;
  // REQUIRES: the choice has reported a token.
  virtual void end_choice(RequestId id, std::int32_t choice, FinishReason reason) = 0;
  // The next batch has the progress of all unfinished requests. There is no answer before the state
  // is kReady. If the engine fails or stops first, the progress is empty.
  virtual void ask_progress() = 0;

  // Whether requests may have a PinOrder and ask_pins() answers. Errors: kUnsupported, with the
  // reason. Valid in the state kReady.
  virtual Status supports_pins() const = 0;
  // A later batch has the answer. If the engine fails or stops first, there is none. Errors:
  // kUnavailable (loading, failed or stopped). REQUIRES: supports_pins().
  virtual Status ask_pins(PinQuestion question) = 0;

  // Clears `batch` and swaps everything reported since the last call into it. If there is nothing,
  // `wake` is called when there is something.
  virtual void take(OutputBatch& batch) = 0;

  virtual std::int32_t max_requests() const = 0;
  virtual EngineState state() const = 0;
  // The reason of the state kFailed.
  virtual std::optional<Error> failure() const = 0;
  virtual std::int32_t unfinished_requests() const = 0;
};

}  // namespace sluice
