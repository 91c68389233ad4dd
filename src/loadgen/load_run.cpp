#include "loadgen/load_run.h"

#include <algorithm>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "loadgen/flight.h"
#include "loadgen/metrics_text.h"

namespace sluice {
namespace {

using std::chrono::seconds;

// Requests that are written in one turn of the loop before it reads answers.
constexpr int kStartsPerTurn = 32;
constexpr std::size_t kMaxMetricsBytes = 16 << 20;
constexpr std::size_t kMaxDifferentErrors = 100;

// Reads /metrics once a second, until a read fails.
class MetricsWatch final : private http::ResponseSink {
 public:
  MetricsWatch(http::EventLoop& loop, http::HttpClient& client, const FlightEvents& time,
               std::vector<ServerSample>& samples)
      : loop_(loop), client_(client), time_(time), samples_(samples) {}

  void ask() {
    status_ = 0;
    body_.clear();
    asked_ = time_.now();
    client_.start({"GET", "/metrics", {}}, *this);
  }

 private:
  void on_head(const http::ResponseHead& head) override { status_ = head.status; }
  void on_body(std::string_view piece) override {
    if (body_.size() + piece.size() <= kMaxMetricsBytes) body_ += piece;
  }
  void on_end(Status status) override {
    if (!status || status_ != 200) return;
    const ScrapedMetrics metrics = parse_metrics(body_);
    if (!metrics.running) return;
    samples_.push_back({asked_, *metrics.running, metrics.waiting.value_or(0), metrics.kv_usage});
    loop_.after(std::max(Duration(0), asked_ + seconds(1) - time_.now()), [this] { ask(); });
  }

  http::EventLoop& loop_;
  http::HttpClient& client_;
  const FlightEvents& time_;
  std::vector<ServerSample>& samples_;
  Duration asked_{0};
  int status_ = 0;
  std::string body_;
};

class LoadRun final : public FlightEvents {
 public:
  LoadRun(const LoadOptions& options, const Workload& workload, PromptMaker prompts,
          const Clock& clock)
      : options_(options),
        workload_(workload),
        writer_(options.form, std::move(prompts)),
        clock_(clock),
        recorder_(options.goodput) {
    CHECK(!options.closed_loop || options.max_concurrency > 0);
  }

  Result<LoadResult> run() {
    ASSIGN_OR_RETURN(client_, http::HttpClient::open(loop_, options_.client));
    MetricsWatch watch(loop_, *client_, *this, result_.samples);
    loop_.on_first_signal({SIGINT, SIGTERM}, [this](int) { end(LoadEnd::kInterrupted); });
    start_ = clock_.now();
    if (options_.time_limit > Duration(0)) {
      loop_.after(options_.time_limit, [this] { end(LoadEnd::kTimeLimit); });
    }
    if (options_.keep_details) watch.ask();
    if (options_.progress_every > Duration(0)) report_progress();
    loop_.post([this] { advance(); });
    loop_.run();
    return std::move(result_);
  }

 private:
  Duration now() const override { return clock_.now() - start_; }
  ChunkReader& reader() override { return reader_; }

  void take_arrivals(Duration time) {
    const std::vector<WorkloadRequest>& requests = workload_.requests;
    if (options_.closed_loop) {
      const std::size_t places =
          static_cast<std::size_t>(options_.max_concurrency) - flying_.size();
      arrived_ = std::min(requests.size(), sent_ + places);
      return;
    }
    while (arrived_ < requests.size() && requests[arrived_].arrival <= time) ++arrived_;
  }

  // Queues the requests that have arrived, and sends those that have a place.
  void advance() {
    if (ended_) return;
    take_arrivals(now());
    for (int starts = 0; sent_ < arrived_ && has_place(); ++starts) {
      if (starts == kStartsPerTurn) {
        loop_.post([this] { advance(); });
        return;
      }
      send(sent_++);
    }
    await_arrival();
    if (landed_ == workload_.requests.size()) end(LoadEnd::kAllEnded);
  }

  // While no answer arrives, only the requests in flight decide whether the server is gone.
  bool has_place() const {
    if (unanswered_ >= kGoneAfter) return false;
    return options_.max_concurrency == 0 ||
           flying_.size() < static_cast<std::size_t>(options_.max_concurrency);
  }

  void await_arrival() {
    if (options_.closed_loop || arrived_ == workload_.requests.size() || timed_ > arrived_) return;
    timed_ = arrived_ + 1;
    const Duration delay = workload_.requests[arrived_].arrival - now();
    loop_.after(std::max(delay, Duration(0)), [this] { advance(); });
  }

  void send(std::size_t index) {
    const WorkloadRequest& request = workload_.requests[index];
    const http::ClientRequest message =
        writer_.write(request, options_.first_number + static_cast<std::int64_t>(index));
    if (spare_.empty()) spare_.push_back(std::make_unique<Flight>(*this));
    std::unique_ptr<Flight> flight = std::move(spare_.back());
    spare_.pop_back();
    const Duration time = now();
    flight->begin(options_.closed_loop ? time : request.arrival, time, request.prompt_tokens);
    client_->start(message, *flight);
    flying_.push_back(std::move(flight));
  }

  void on_token(Duration time, std::optional<Duration> gap) override {
    ++chunks_;
    if (gap) {
      recorder_.add_token(time, *gap);
    } else {
      recorder_.add_first_token(time);
    }
    if (!options_.keep_details) return;
    result_.chunks.push_back({static_cast<float>(to_seconds(time)),
                              gap ? static_cast<float>(to_milliseconds(*gap)) : -1.0F});
  }

  void on_landed(Flight& flight) override {
    const RequestRecord& record = flight.record();
    keep(flight);
    ++landed_;
    landed_tokens_ += record.output_tokens;
    landed_chunks_ += flight.chunks();
    unanswered_ = flight.answered() ? 0 : unanswered_ + 1;
    const auto found = std::find_if(flying_.begin(), flying_.end(),
                                    [&](const auto& one) { return one.get() == &flight; });
    CHECK(found != flying_.end());
    spare_.push_back(std::move(*found));
    *found = std::move(flying_.back());
    flying_.pop_back();
    if (unanswered_ >= kGoneAfter && flying_.empty()) return end(LoadEnd::kServerGone);
    advance();
  }

  bool keeps_answers() const override { return options_.keep_answers; }

  void keep(Flight& flight) {
    const RequestRecord& record = flight.record();
    recorder_.add_request(record);
    result_.records.push_back(record);
    if (options_.keep_answers) result_.answers.push_back(flight.take_answer());
    if (record.error.empty()) return;
    const bool known = errors_.contains(record.error) || errors_.size() < kMaxDifferentErrors;
    ++errors_[known ? record.error : "other errors"];
  }

  // Only the first call has an effect: the first reason counts.
  void end(LoadEnd reason) {
    if (std::exchange(ended_, true)) return;
    if (options_.progress_every > Duration(0)) options_.progress(progress());
    const Duration time = now();
    result_.end = reason;
    for (const auto& flight : flying_) {
      client_->cancel(*flight);
      flight->give_up(time);
      keep(*flight);
    }
    // Arrived, and still waiting for a place at the client.
    if (!options_.closed_loop) take_arrivals(time);
    for (; !options_.closed_loop && sent_ < arrived_; ++sent_) {
      const WorkloadRequest& request = workload_.requests[sent_];
      Flight waiting(*this);
      waiting.begin(request.arrival, time, request.prompt_tokens);
      waiting.give_up(time);
      keep(waiting);
    }
    result_.not_sent = static_cast<std::int64_t>(workload_.requests.size() - sent_);
    result_.summary = recorder_.finish(time);
    result_.errors.assign(errors_.begin(), errors_.end());
    std::stable_sort(result_.errors.begin(), result_.errors.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    loop_.stop();
  }

  LoadProgress progress() const {
    LoadProgress progress = recorded_progress(recorder_, now());
    progress.total = static_cast<std::int64_t>(workload_.requests.size());
    progress.in_flight = static_cast<std::int64_t>(flying_.size());
    progress.output_tokens = landed_tokens_ + chunks_ - landed_chunks_;
    return progress;
  }

  void report_progress() {
    if (ended_) return;
    options_.progress(progress());
    loop_.after(options_.progress_every, [this] { report_progress(); });
  }

  const LoadOptions& options_;
  const Workload& workload_;
  RequestWriter writer_;
  const Clock& clock_;
  ServingRecorder recorder_;
  ChunkReader reader_;
  http::EventLoop loop_;
  std::unique_ptr<http::HttpClient> client_;
  TimePoint start_;
  std::vector<std::unique_ptr<Flight>> flying_;
  std::vector<std::unique_ptr<Flight>> spare_;
  std::size_t arrived_ = 0;
  std::size_t sent_ = 0;
  std::size_t landed_ = 0;
  std::size_t timed_ = 0;  // one past the arrival that a timer waits for
  int unanswered_ = 0;     // in a row
  std::int64_t chunks_ = 0;
  std::int64_t landed_chunks_ = 0;
  std::int64_t landed_tokens_ = 0;
  std::map<std::string, std::int64_t> errors_;
  bool ended_ = false;
  LoadResult result_;
};

}  // namespace

LoadProgress recorded_progress(const ServingRecorder& recorder, Duration elapsed) {
  const ServingSummary& so_far = recorder.so_far();
  LoadProgress progress;
  progress.elapsed = elapsed;
  progress.completed = so_far.completed;
  progress.failed = so_far.failed;
  progress.p99_ttft = so_far.ttft.percentile(99);
  progress.p99_tbt = so_far.tbt.percentile(99);
  return progress;
}

Result<LoadResult> run_load(const LoadOptions& options, const Workload& workload,
                            PromptMaker prompts, const Clock& clock) {
  return LoadRun(options, workload, std::move(prompts), clock).run();
}

}  // namespace sluice
