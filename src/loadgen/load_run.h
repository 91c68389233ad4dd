// run_load(): sends a workload to a server. Requests go out at their arrival times, regardless of
// the answers (open loop), or as soon as a place is free (closed loop). Every answer is streamed
// and timed. A failed request does not end the run. A run ends before its requests by time, by a
// signal or because the server is gone; the rest then stays in the figures as unfinished. Has an
// event loop of its own. Blocks the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "http/http_client.h"
#include "loadgen/flight.h"
#include "loadgen/request_writer.h"
#include "workload/serving_summary.h"
#include "workload/workload.h"

namespace sluice {

// The state of a run, for display.
struct LoadProgress {
  Duration elapsed{0};
  std::int64_t total = 0;
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::int64_t in_flight = 0;
  std::int64_t output_tokens = 0;  // chunks, of requests that have not ended
  Duration p99_ttft{0};
  Duration p99_tbt{0};
};

// The part that a run's recorder knows; the caller adds the rest.
LoadProgress recorded_progress(const ServingRecorder& recorder, Duration elapsed);

struct LoadOptions {
  http::HttpClientOptions client;
  RequestForm form;
  std::int32_t max_concurrency = 0;  // 0: no limit; others wait at the client
  // A request arrives when a place becomes free, not at the workload's time; needs max_concurrency.
  bool closed_loop = false;
  Duration time_limit{0};  // 0: until all have ended
  Goodput goodput;
  // Also records the time of each chunk and, once a second, the server's /metrics.
  bool keep_details = false;
  bool keep_answers = false;      // each request's text and gaps
  std::int64_t first_number = 0;  // of the first request's prompt: runs that differ share none
  Duration progress_every{0};     // 0: never
  std::function<void(const LoadProgress&)> progress;
};

enum class LoadEnd : std::uint8_t {
  kAllEnded,
  kTimeLimit,
  kInterrupted,  // SIGINT or SIGTERM
  kServerGone,   // see kGoneAfter
};

// A chunk: one token, or a few tokens that arrived together.
struct ChunkMark {
  float at_s = 0;     // since the run's start
  float gap_ms = -1;  // since the one before of its request; negative: the first
};

struct ServerSample {
  Duration at{0};
  double running = 0;
  double waiting = 0;
  std::optional<double> kv_usage;
};

struct LoadResult {
  ServingSummary summary;
  LoadEnd end = LoadEnd::kAllEnded;
  std::int64_t not_sent = 0;           // requests that had not arrived when the run ended
  std::vector<RequestRecord> records;  // of the requests that had
  // The different messages with the number of requests that failed by each, most first.
  std::vector<std::pair<std::string, std::int64_t>> errors;
  // With keep_details.
  std::vector<ChunkMark> chunks;
  std::vector<ServerSample> samples;
  // With keep_answers: as many as records, in their order.
  std::vector<AnswerDetail> answers;
};

// After 20 requests in a row without any answer, and with none in flight, the server is gone.
inline constexpr int kGoneAfter = 20;

// The only error is an unknown host, before the run begins.
Result<LoadResult> run_load(const LoadOptions& options, const Workload& workload,
                            PromptMaker prompts, const Clock& clock);

}  // namespace sluice
