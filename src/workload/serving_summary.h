// The figures of a run as its clients see them, with the names and JSON keys of `vllm bench serve`,
// for requests to a server and simulated ones.
//
// TTFT is counted from the intended arrival when the loop is open, so that a stalled server or a
// slow client cannot hide requests (coordinated omission). A request that is unfinished when the
// run ends is included: its TTFT or its open gap counts with the waiting time so far.
// docs/workloads.md defines every figure.
// Owner: the run. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "workload/latency_pool.h"

namespace sluice {

// The record of one request at its end, or at the end of the run if it is unfinished. Times since
// the run's start.
struct RequestRecord {
  Duration arrival{0};  // intended; in a closed loop: the time of sending
  Duration sent{0};
  std::optional<Duration> first_token;
  std::optional<Duration> last_token;
  Duration ended{0};
  std::int32_t prompt_tokens = 0;
  std::int32_t output_tokens = 0;  // received
  bool finished = false;           // it ended by itself before the run did
  std::string error;               // not empty: it failed
  // From arrival to the first step; only the simulator knows it. For a request that never ran: the
  // waiting time so far.
  std::optional<Duration> scheduling_delay;
};

// A request is good if it meets all given limits.
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
  // Sums over completed and unfinished requests. A prompt counts once a token of the answer has
  // arrived.
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;
  std::int64_t good = 0;
  bool has_goodput = false;
  std::int64_t max_output_tokens_per_s = 0;  // in the best second
  std::int64_t max_concurrent_requests = 0;  // sent and not ended
  double realised_rate = 0;                  // of the arrivals, requests per second
  // TPOT: (end - first token) / (tokens - 1) per request of more than one. TBT: every gap
  // between two tokens of a request, of all requests. E2EL: from arrival to the last token.
  LatencyPool ttft, tpot, tbt, e2el, scheduling_delay;

  double request_throughput() const;  // completed ones per second
  double request_goodput() const;     // good ones per second
  double output_throughput() const;   // tokens per second
  double total_token_throughput() const;
};

class ServingRecorder {
 public:
  explicit ServingRecorder(const Goodput& goodput = {});

  // Records a token at `now`, `gap` after the previous token of its request; or `times` such
  // tokens, each of another request.
  void add_first_token(Duration now) { count_tokens(now, 1); }
  void add_token(Duration now, Duration gap, std::int64_t times = 1) {
    summary_.tbt.add(gap, times);
    count_tokens(now, times);
  }
  void add_request(const RequestRecord& record);

  // The counts and latencies so far, without the figures that need the run's end. Valid until
  // finish().
  const ServingSummary& so_far() const { return summary_; }

  // REQUIRES: called once, when all requests are added.
  ServingSummary finish(Duration duration);

 private:
  // Tokens of one second of the run. Seconds without tokens have none, so that a slow run of a
  // year costs no more than its tokens.
  struct SecondCount {
    std::int64_t second = 0;
    std::int64_t tokens = 0;
  };

  void count_tokens(Duration now, std::int64_t times) {
    if (now < second_start_ || now >= second_end_) change_second(now);
    second_tokens_ += times;
  }
  void change_second(Duration now);
  void close_second();
  void add_answered(const RequestRecord& record);
  std::int64_t most_concurrent();

  Goodput goodput_;
  ServingSummary summary_;
  // The current second, and the earlier ones.
  Duration second_start_{0};
  Duration second_end_{0};
  std::int64_t second_tokens_ = 0;
  std::vector<SecondCount> seconds_;
  std::vector<Duration> sent_;
  std::vector<Duration> ended_;
  Duration first_arrival_ = Duration::max();
  Duration last_arrival_{0};
};

// One JSON object with vLLM's keys (duration, completed, ..., mean_ttft_ms, p99_tpot_ms) followed
// by our own (unfinished, realised_request_rate, *_scheduling_delay_ms if known). `percentiles` in
// percent, p99 always among them. Members of `extra`, JSON values as text, come first.
std::string summary_json(const ServingSummary& summary, const std::vector<double>& percentiles,
                         const std::vector<std::pair<std::string, std::string>>& extra);

// The table of vllm bench serve, for people. `metrics`: those to show, by their names in the keys
// above (ttft, tpot, ...); none: all.
std::string summary_table(const ServingSummary& summary, const std::vector<double>& percentiles,
                          const std::vector<std::string>& metrics = {});

}  // namespace sluice
