// Sequence: one token stream that the engine runs for a request: choice k of `n`. Pure data, owned
// by the engine. Only the scheduler changes it, on the engine's thread, in plan and commit.
//
//   tokens:  [ prompt ............ | output ........ ]
//              computed (in KV)  ->|  in_flight: being computed by submitted steps
//
// Invariants: 0 <= computed, 0 <= in_flight, prompt_len <= length().
// computed + in_flight may exceed length() while a step runs whose tokens are not known yet.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/token_id.h"
#include "request/finish_reason.h"
#include "request/request.h"

namespace sluice {

using SequenceId = std::uint64_t;

enum class SequenceState : std::uint8_t { kWaiting, kRunning, kFinished };

// Paging: how far a waiting sequence is with blocks that only a tier below memory has.
enum class Paging : std::uint8_t {
  kNone,         // has not looked
  kLoading,      // waits for its loads
  kFollowing,    // waits for another sequence's loads, then looks again
  kMeeting,      // will be loaded from the back while its front is computed
  kMeetingRest,  // the same, after loads of its beginning
  kDone,         // its loads have ended or run beside its steps; what is missing is computed
};

constexpr bool meets_loads(Paging paging) {
  return paging == Paging::kMeeting || paging == Paging::kMeetingRest;
}
// Whether loads have brought blocks that nothing holds until the sequence is admitted.
constexpr bool awaits_slot_loaded(Paging paging) {
  return paging == Paging::kMeetingRest || paging == Paging::kDone;
}

// Turn: a sequence's share of contended memory under the `fair` policy (scheduler/policy_fair.h).
struct Turn {
  // Tokens of earlier turns, or the least that another sequence had when this one came.
  std::int64_t served = 0;
  // The turn lasts from position `begin` to `end`, a border of blocks. -1: it has none.
  std::int32_t begin = -1;
  std::int32_t end = 0;
  // It was chosen, and its KV was back in memory; together they say what the return took.
  std::optional<TimePoint> chosen = std::nullopt;
  std::optional<TimePoint> back = std::nullopt;
};

struct Sequence {
  SequenceId id = 0;
  const Request* request = nullptr;  // owned by the engine; outlives the sequence
  std::int32_t choice = 0;
  std::uint64_t ticket = 0;  // its number by arrival, set by the scheduler

  // Empty until the first slot: then the prompt is copied and max_len tokens are reserved, so that
  // waiting choices cost no memory. A caller without a real request may fill it at once.
  std::vector<TokenId> tokens;
  std::int32_t prompt_len = 0;
  std::int32_t max_len = 0;  // prompt + max_tokens, at most the context
  std::int32_t computed = 0;
  std::int32_t in_flight = 0;
  std::int32_t scored = 0;  // prompt tokens with log-probabilities so far, in plans included
  // Found in the prefix cache when first admitted, or loaded while its front was computed.
  std::int32_t cached_prompt_tokens = 0;

  SequenceState state = SequenceState::kWaiting;
  FinishReason finish_reason = FinishReason::kNone;
  std::int32_t slot = -1;  // row of the executor's per-sequence state while running, else -1
  std::int32_t num_preemptions = 0;
  Paging paging = Paging::kNone;
  Turn turn;
  bool cancel_requested = false;
  FinishReason cancel_reason = FinishReason::kCancelled;

  // After a preemption: names of the full blocks computed so far, outputs included, and of the
  // partial block behind them (kv/block_names.h).
  std::vector<Hash128> block_hashes;
  Hash128 tail_name;
  std::int32_t tail_end = 0;  // 0: the partial block has no name

  // The KV of the sequence is streamed (scheduler/stream_lane.h): the most blocks of positions that
  // it will have (0: it is not streamed), and while it waits the tokens whose KV is kept.
  std::int32_t streamed_blocks = 0;
  std::int32_t streamed_kept = 0;
  std::int32_t streamed_reached = 0;  // the end of the rows so far

  TimePoint first_scheduled;
  TimePoint first_token;

  // Number of prompt and output tokens.
  std::int32_t length() const {
    return tokens.empty() ? prompt_len : static_cast<std::int32_t>(tokens.size());
  }
  std::int32_t output_len() const { return length() - prompt_len; }
};

}  // namespace sluice
