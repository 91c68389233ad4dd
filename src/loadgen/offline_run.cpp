#include "loadgen/offline_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace sluice {
namespace {

class OfflineRun {
 public:
  OfflineRun(Engine& engine, const OfflineOptions& options, const Workload& workload,
             PromptMaker prompts, const Clock& clock)
      : engine_(engine),
        options_(options),
        workload_(workload),
        prompts_(std::move(prompts)),
        clock_(clock),
        before_(engine.stats()) {}

  Result<OfflineResult> run() {
    start_ = clock_.now();
    const std::size_t total = workload_.requests.size();
    const std::int64_t preempted = before_.preemptions;
    const auto size = options_.batch_size > 0 ? static_cast<std::size_t>(options_.batch_size)
                                              : std::max<std::size_t>(total, 1);
    while (next_ < total && !result_.interrupted) {
      batch_start_ = now();
      RETURN_IF_ERROR(run_batch(std::min(total, next_ + size)));
      if (!result_.interrupted) result_.latencies.push_back(now() - batch_start_);
    }
    result_.not_started = static_cast<std::int64_t>(total - next_);
    result_.preemptions = engine_.stats().preemptions - preempted;
    if (options_.progress_every > Duration(0)) options_.progress(progress());
    result_.summary = recorder_.finish(now());
    return std::move(result_);
  }

 private:
  Duration now() const { return clock_.now() - start_; }

  // Runs the requests up to `last` until all of them have ended.
  Status run_batch(std::size_t last) {
    Duration step_start = batch_start_;
    while (next_ < last || engine_.has_work()) {
      if (options_.interrupted && options_.interrupted() &&
          !std::exchange(result_.interrupted, true))
        engine_.cancel_all();
      if (result_.interrupted) last = next_;
      RETURN_IF_ERROR(feed(last));
      if (!engine_.has_work()) break;
      ASSIGN_OR_RETURN(const auto outputs, engine_.step());
      const Duration time = now();
      count_step(time - std::exchange(step_start, time));
      for (const ChoiceOutput& output : outputs) take(output, time);
      if (options_.progress_every > Duration(0) && time - shown_ >= options_.progress_every) {
        shown_ = time;
        options_.progress(progress());
      }
    }
    return {};
  }

  Status feed(std::size_t last) {
    while (next_ < last && engine_.scheduler().num_waiting() < options_.max_waiting) {
      const WorkloadRequest& wanted = workload_.requests[next_];
      Request request;
      request.id = next_ + 1;
      prompts_.make_ids(wanted, options_.first_number + static_cast<std::int64_t>(next_),
                        request.prompt);
      request.arrival = start_ + batch_start_;
      request.sampling.max_tokens = wanted.output_tokens;
      request.sampling.temperature = static_cast<float>(options_.temperature);
      request.sampling.seed = options_.seed + next_;
      request.sampling.ignore_eos = true;
      if (!options_.adapters.empty()) {
        request.adapter = options_.adapters[next_ % options_.adapters.size()];
      }
      RequestRecord& record = live_[request.id];
      record.arrival = record.sent = batch_start_;
      record.prompt_tokens = wanted.prompt_tokens;
      ++next_;
      if (auto status = engine_.add_request(std::move(request)); !status) {
        return with_context(fmt::format("request {}", next_), std::move(status).error());
      }
    }
    return {};
  }

  void count_step(Duration time) {
    const EngineStats& stats = engine_.stats();
    const std::int64_t prefill = stats.prefill_tokens - before_.prefill_tokens;
    const std::int64_t decode = stats.decode_tokens - before_.decode_tokens;
    const DeviceTime device{stats.device.busy - before_.device.busy,
                            stats.device.idle - before_.device.idle};
    const ComputedWork computed = stats.computed - before_.computed;
    before_ = stats;
    if (prefill + decode == 0) return;
    StepTotals& totals = decode == 0    ? result_.prefill
                         : prefill == 0 ? result_.decode
                                        : result_.hybrid;
    ++totals.steps;
    totals.prefill_tokens += prefill;
    totals.decode_tokens += decode;
    totals.time += time;
    totals.device.busy += device.busy;
    totals.device.idle += device.idle;
    totals.computed += computed;
  }

  void take(const ChoiceOutput& output, Duration time) {
    const auto found = live_.find(output.request);
    RequestRecord& record = found->second;
    for (std::size_t i = 0; i < output.tokens.size(); ++i) {
      if (record.last_token) {
        recorder_.add_token(time, time - *record.last_token);
      } else {
        recorder_.add_first_token(time);
        record.first_token = time;
      }
      record.last_token = time;
      ++record.output_tokens;
      ++output_tokens_;
    }
    if (output.finish_reason == FinishReason::kNone) return;
    record.ended = time;
    record.finished = output.finish_reason != FinishReason::kCancelled;
    if (is_failure(output.finish_reason)) {
      record.error = failure_of(output.finish_reason).message;
    }
    recorder_.add_request(record);
    live_.erase(found);
  }

  LoadProgress progress() const {
    LoadProgress progress = recorded_progress(recorder_, now());
    progress.total = static_cast<std::int64_t>(workload_.requests.size());
    progress.in_flight = engine_.scheduler().num_running();
    progress.output_tokens = output_tokens_;
    return progress;
  }

  Engine& engine_;
  const OfflineOptions& options_;
  const Workload& workload_;
  PromptMaker prompts_;
  const Clock& clock_;
  ServingRecorder recorder_;
  TimePoint start_;
  Duration batch_start_{0};  // this and all below: since start_
  Duration shown_{0};
  EngineStats before_;
  std::size_t next_ = 0;
  std::unordered_map<RequestId, RequestRecord> live_;
  std::int64_t output_tokens_ = 0;
  OfflineResult result_;
};

}  // namespace

Result<OfflineResult> run_offline(Engine& engine, const OfflineOptions& options,
                                  const Workload& workload, PromptMaker prompts,
                                  const Clock& clock) {
  return OfflineRun(engine, options, workload, std::move(prompts), clock).run();
}

}  // namespace sluice
