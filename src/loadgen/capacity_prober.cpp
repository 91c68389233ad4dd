#include "loadgen/capacity_prober.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "base/log.h"
#include "http/fetch.h"

namespace sluice {
namespace {

constexpr std::int64_t kUnloadedRequests = 8;
// After its last arrival, a probe may run for half the duration of its arrivals plus this time.
constexpr Duration kGrace = std::chrono::seconds(30);
constexpr int kIdlePatienceSeconds = 60;

const http::ClientRequest kMetricsRequest{"GET", "/metrics", {}};

}  // namespace

CapacityProber::CapacityProber(CapacityProberOptions options) : options_(std::move(options)) {}

std::string_view CapacityProber::delay_source() const {
  return has_histogram_ ? "server histogram" : "TTFT above the unloaded one";
}

Result<std::vector<QueueTimeBucket>> CapacityProber::queue_times() const {
  ASSIGN_OR_RETURN(const http::Answer answer, http::fetch(options_.load.client, kMetricsRequest));
  if (answer.status != 200) return std::vector<QueueTimeBucket>();
  return parse_metrics(answer.body).queue_time;
}

Status CapacityProber::prepare() {
  ASSIGN_OR_RETURN(const auto buckets, queue_times());
  has_histogram_ = !buckets.empty();
  if (has_histogram_) {
    log_info("scheduling delay: from the server's histogram request_queue_time_seconds");
    return {};
  }
  RETURN_IF_ERROR(measure_unloaded());
  log_warning(fmt::format(
      "scheduling delay: ESTIMATED. The server's /metrics has no request_queue_time_seconds, so "
      "the delay of a probe is its median TTFT less {:.1f} ms, the median TTFT of requests sent "
      "one at a time",
      to_milliseconds(unloaded_ttft_)));
  return {};
}

// The run's prompts have numbers that no earlier run used.
Result<LoadResult> CapacityProber::run(LoadOptions load, const Workload& workload) {
  load.keep_details = false;
  load.first_number = next_number_;
  next_number_ += static_cast<std::int64_t>(workload.requests.size());
  const SystemClock clock;
  auto result =
      run_load(load, workload, PromptMaker(options_.token_ids, options_.workload.seed), clock);
  if (result && result->end == LoadEnd::kInterrupted) {
    return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return result;
}

Status CapacityProber::measure_unloaded() {
  WorkloadSpec spec = options_.workload;
  spec.count = kUnloadedRequests;
  LoadOptions load = options_.load;
  load.max_concurrency = 1;
  load.closed_loop = true;
  load.progress_every = Duration(0);
  ASSIGN_OR_RETURN(const MadeWorkload made, make_workload(spec));
  ASSIGN_OR_RETURN(const LoadResult result, run(std::move(load), made.workload));
  if (!result.errors.empty()) return unavailable(result.errors.front().first);
  unloaded_ttft_ = result.summary.ttft.percentile(50);
  return {};
}

// Waits until the server is idle, so that unfinished requests of an overloaded probe do not run
// beside those of the next probe.
void CapacityProber::await_idle() const {
  for (int turn = 0; turn < 10 * kIdlePatienceSeconds; ++turn) {
    const auto answer = http::fetch(options_.load.client, kMetricsRequest);
    if (!answer || answer->status != 200) return;
    const ScrapedMetrics metrics = parse_metrics(answer->body);
    if (metrics.running.value_or(0) + metrics.waiting.value_or(0) == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  log_warning(
      fmt::format("the server is still busy {} s after a probe; does another client use it?",
                  kIdlePatienceSeconds));
}

Result<Duration> CapacityProber::median_delay(const LoadResult& run,
                                              const std::vector<QueueTimeBucket>& before) const {
  const Duration ttft = run.summary.ttft.percentile(50);
  if (!has_histogram_) return std::max(Duration(0), ttft - unloaded_ttft_);
  ASSIGN_OR_RETURN(const auto after, queue_times());
  const auto ours = static_cast<std::int64_t>(run.records.size());
  const std::int64_t recorded = queue_time_count(before, after);
  if (recorded > ours) {
    log_warning(fmt::format(
        "the server ran {} requests during a probe of {}: another client uses it, and the result "
        "is worth little",
        recorded, ours));
  }
  const auto median = median_queue_time(before, after, std::max<std::int64_t>(0, ours - recorded));
  // Half of the requests never ran, so the median is at least the time that their clients have
  // waited.
  return median.value_or(ttft);
}

Result<CapacityProbe> CapacityProber::probe(double rate) {
  WorkloadSpec spec = options_.workload;
  spec.rate = rate;
  spec.count = std::max<std::int64_t>(
      spec.count, static_cast<std::int64_t>(std::ceil(rate * options_.probe_seconds)));
  ASSIGN_OR_RETURN(const MadeWorkload made, make_workload(spec));
  LoadOptions load = options_.load;
  if (load.time_limit == Duration(0)) {
    const Duration arrivals = made.workload.requests.back().arrival;
    load.time_limit = arrivals + arrivals / 2 + kGrace;
  }
  await_idle();
  std::vector<QueueTimeBucket> before;
  if (has_histogram_) {
    ASSIGN_OR_RETURN(before, queue_times());
  }
  log_info(fmt::format("probe {}: {:.3f} requests/s, {} requests", outcomes_.size() + 1, rate,
                       made.workload.requests.size()));
  auto ran = run(std::move(load), made.workload);
  if (options_.run_ended) options_.run_ended();
  if (!ran) return std::move(ran).error();
  const LoadResult& run = *ran;
  if (run.end == LoadEnd::kServerGone) {
    return unavailable(fmt::format("the server is gone: {}", run.errors.empty()
                                                                 ? std::string("no answers")
                                                                 : run.errors.front().first));
  }
  if (run.summary.completed == 0 && run.summary.failed > 0) {
    return unavailable(fmt::format("every request failed: {}", run.errors.front().first));
  }
  await_idle();
  CapacityProbe probe;
  probe.rate = rate;
  probe.p99_tbt = run.summary.tbt.percentile(99);
  ASSIGN_OR_RETURN(probe.median_scheduling_delay, median_delay(run, before));
  if (run.summary.failed > 0) {
    log_warning(fmt::format("{} requests failed ({}), so this rate does not meet the objectives",
                            run.summary.failed, run.errors.front().first));
  }
  Outcome outcome;
  outcome.point.rate = rate;
  outcome.point.realised = run.summary.realised_rate;
  outcome.point.output_throughput = run.summary.output_throughput();
  outcome.point.p99_tbt_ms = to_milliseconds(probe.p99_tbt);
  outcome.point.median_ttft_ms = to_milliseconds(run.summary.ttft.percentile(50));
  outcome.point.median_delay_ms = to_milliseconds(probe.median_scheduling_delay);
  outcome.json = summary_json(
      run.summary, options_.percentiles,
      {{"request_rate", fmt::format("{}", rate)},
       {"median_scheduling_delay_s", fmt::format("{}", outcome.point.median_delay_ms / 1000)}});
  outcomes_.push_back(std::move(outcome));
  if (run.summary.failed > 0) probe.median_scheduling_delay = Duration::max();
  return probe;
}

}  // namespace sluice
