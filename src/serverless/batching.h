// Batching and turns (ServerlessLoRA, section 4.2, equations 2 to 5): which function's waiting
// requests are dispatched now, how many of them, in which order, and which are refused because they
// cannot meet their SLO any more.
//
// Three modes:
// - kFillOrExpire, as printed. A batch is held until it has B requests, the most whose T(B) meets
//   the SLO, or until the oldest has waited for d = SLO - T(N). On an idle machine a lone request
//   waits for nearly its whole SLO.
// - kWorkConserving, the default. A batch is held only while waiting costs nothing: while its
//   instance starts, or while another function has the turn on the device. One function has the
//   turn of a device at a time.
// - kFixed, for comparison: a batch is held until it has a given number of requests, or until its
//   oldest one has waited for a given time.
//
// A dispatched batch joins the batch that the function's engine computes. So T of a waiting request
// has the tokens in it that were dispatched before and have no first token yet.
//
// Margins (equation 5) order the dispatches: SLO - (time waited + M T), least first, where M is the
// number of functions on the device that have requests waiting or the turn. For a fixed M this is
// the order of arrival + SLO - M T. So a request is overtaken only by requests that came less than
// (SLO - SLO') + M (T' - T) after it: nothing waits without end.
//
// Pure functions; any thread. Times are Durations, T is in seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "serverless/functions_file.h"

namespace sluice {

// Time of a prefill that computes `tokens` prompt tokens together, as this machine does it.
struct PrefillTime {
  double step_s = 0;   // of a step
  double token_s = 0;  // of each token more

  double seconds(std::int64_t tokens) const {
    return step_s + token_s * static_cast<double>(tokens);
  }
};

// Equation 2: T(b) = T0 + alpha (b - 1), in requests.
struct PrefillLine {
  double first_s = 0;  // T0
  double next_s = 0;   // alpha

  double seconds(std::int32_t requests) const { return first_s + next_s * (requests - 1); }
  // B: the most requests whose T is within the SLO; at least 1.
  std::int32_t max_requests(Duration slo) const;
};

// The line that prompts of `tokens` each give; prompts of other lengths lie off it.
PrefillLine line_of(const PrefillTime& time, double tokens);

struct WaitingRequest {
  TimePoint arrival;
  std::int64_t tokens = 0;  // of the prompt that are to be computed
};

struct WaitingBatch {
  std::int32_t function = 0;
  std::int32_t device = 0;
  Duration slo{0};
  PrefillTime time;
  PrefillLine line;                          // kFillOrExpire
  Duration ready_in{0};                      // at least, until an instance can compute; 0: warm
  std::span<const WaitingRequest> requests;  // one at least, oldest first
  // Tokens of the function's requests that were dispatched and have no first token yet. The waiting
  // ones are computed after them.
  std::int64_t ahead = 0;
};

struct BatchingView {
  TimePoint now;
  Batching mode = Batching::kWorkConserving;
  std::span<const WaitingBatch> batches;
  std::span<const std::int32_t> turns;  // of each device: functions that have the turn
  FixedBatch fixed{};                   // kFixed
};

struct BatchDispatch {
  std::int32_t batch = 0;     // index in the view
  std::int32_t first = 0;     // of the batch's requests
  std::int32_t requests = 0;  // how many, in their order; refused ones are not among them
  double margin_s = 0;        // equation 5, of the oldest one
};

struct Refusal {
  std::int32_t batch = 0;
  std::int32_t request = 0;  // index in the batch
};

struct BatchingPlan {
  std::vector<BatchDispatch> dispatches;  // in order of margins
  std::vector<Refusal> refusals;
  // When a held batch is due although nothing happens until then.
  std::optional<TimePoint> wake_at;
};

BatchingPlan plan_batches(const BatchingView& view);

}  // namespace sluice
