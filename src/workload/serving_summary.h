// What a run of requests looked like to its clients: the figures, names and JSON keys of
// `vllm bench serve`, whether the requests were sent to a server or simulated.
//
// TTFT is counted from the intended arrival when the loop is open, so that a stalled server or a
// slow client cannot hide requests (coordinated omission); a request that had not ended when the
// run did stays in: its TTFT and its open gap count with the time waited so far. Owner: the run.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "workload/latency_pool.h"

namespace sluice {

// One request's end, or the run's while it was unfinished. Times since the run's start.
struct RequestRecord {
  Duration arrival{0};  // intended
  Duration sent{0};
  std::optional<Duration> first_token;
  std::optional<Duration> last_token;
  Duration ended{0};
  std::int32_t prompt_tokens = 0;
  std::int32_t output_tokens = 0;
  bool finished = false;  // it ended by itself before the run did
  std::string error;      // not empty: it failed
  // From arrival until it first ran, where that can be known (the simulator).
  std::optional<Duration> scheduling_delay;
};

// A request is good when it meets all that are given.
struct Goodput {
  std::optional<Duration> ttft;
  std::optional<Duration> tpot;
  std::optional<Duration> e2el;
};

struct ServingSummary {
  Duration duration{0};
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::int64_t unfinished = 0;
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;
  std::int64_t good = 0;
  bool has_goodput = false;
  std::int64_t max_output_tokens_per_s = 0;  // in the best second
  std::int64_t max_concurrent_requests = 0;
  double realised_rate = 0;  // of the arrivals, requests per second
  // TPOT: (end - first token) / (tokens - 1) per request of more than one. ITL (TBT): every gap
  // between two tokens of a request, of all requests.
  LatencyPool ttft, tpot, itl, e2el, scheduling_delay;
};

class ServingRecorder {
 public:
  explicit ServingRecorder(const Goodput& goodput = {});

  // A token came at `now`, `gap` after the one before it of its request.
  void add_first_token(Duration now);
  void add_token(Duration now, Duration gap);
  void add_request(const RequestRecord& record);

  // REQUIRES: called once, when all requests are added.
  ServingSummary finish(Duration duration);

 private:
  void count_token(Duration now);

  Goodput goodput_;
  ServingSummary summary_;
  std::vector<std::int64_t> tokens_by_second_;
  std::vector<std::pair<Duration, int>> concurrency_;  // +1 when sent, -1 when ended
  Duration first_arrival_{0};
  Duration last_arrival_{0};
};

// One JSON object with vLLM's keys (duration, completed, ..., mean_ttft_ms, p99_itl_ms) and ours
// behind them (unfinished, realised_request_rate, *_scheduling_delay_ms). `percentiles` in percent,
// p99 always among them. Members of `extra`, JSON values as text, come first.
std::string summary_json(const ServingSummary& summary, const std::vector<double>& percentiles,
                         const std::vector<std::pair<std::string, std::string>>& extra);

// The table of vllm bench serve, for people.
std::string summary_table(const ServingSummary& summary, const std::vector<double>& percentiles);

}  // namespace sluice
