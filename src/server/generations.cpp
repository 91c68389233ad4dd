#include "server/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/answer_size.h"
#include "server/error_response.h"

namespace sluice {
namespace {

// The bytes of a call that count against kMaxHeldBytes.
std::size_t counted_bytes(const Generation& generation) {
  return generation.held_bytes() <= kFairAnswerBytes ? 0 : generation.held_bytes();
}

}  // namespace

Generations::Generations(EngineLoop& engine, RunOnWorker run_on_worker, const Clock& clock,
                         AccessLog& log, ServerMetrics& metrics, Duration keep_alive)
    : engine_(engine),
      run_on_worker_(std::move(run_on_worker)),
      clock_(clock),
      log_(log),
      metrics_(metrics),
      keep_alive_(keep_alive) {}

Generations::~Generations() = default;

void Generations::start(ExchangePtr exchange, PreparedGeneration prepared, AnswerHead head,
                        const Tokenizer& tokenizer, AccessRecord record, KeyQuotas::Lease lease) {
  const RequestId first_id = next_id_;
  next_id_ += prepared.parts.size();
  const std::string client = record.client;
  const GenerationContext context{tokenizer, engine_, clock_, metrics_};
  auto generation =
      std::make_unique<Generation>(std::move(exchange), std::move(prepared), std::move(head),
                                   context, first_id, std::move(record), std::move(lease));
  Generation& started = *generation;
  generations_.emplace(first_id, std::move(generation));
  if (const auto deadline = started.deadline()) deadlines_.emplace(*deadline, first_id);
  const auto refused = refuse(started);
  held_bytes_ += counted_bytes(started);
  if (refused) {
    started.refuse(*refused, 0);
    return retire(first_id);
  }
  for (std::size_t i = 0; i < started.num_prompts(); ++i) {
    by_request_.emplace(first_id + i, &started);
    Request request = started.make_request(i, client);
    AdmittedRequest admitted{request.sampling.n, request.sampling.max_tokens, Duration{0}};
    auto status = engine_.submit(std::move(request));
    if (status) {
      admitted.dispatch = clock_.now() - started.received();
      metrics_.request_admitted(admitted);
      continue;
    }
    ApiError error = to_api_error(status.error());
    const ErrorCode code = status.error().code;
    if (code == ErrorCode::kResourceExhausted) {
      error.retry_after_s = retry_after_.refused(clock_.now());
      metrics_.request_refused("queue_full");
    } else if (code == ErrorCode::kUnavailable) {
      error.retry_after_s = RetryAfter::kMinSeconds;
      metrics_.request_refused("unavailable");
    } else {
      metrics_.request_refused("too_large");  // a retry would fail, too
    }
    started.refuse(error, i);
    retire(first_id);
    return;
  }
  started.on_close([this, first_id](http::CloseReason reason) { closed(first_id, reason); });
  started.replay();
  started.flush();
  if (started.finished()) retire(first_id);  // the client does not read
}

std::int32_t Generations::save_unfinished() const {
  if (resume_ == nullptr) return 0;
  std::vector<ResumeStore::Entry> entries;
  std::vector<const Generation*> owners;
  for (const auto& [id, generation] : generations_) {
    auto answer = generation->unfinished_answer();
    if (!answer) continue;
    entries.push_back({*generation->resume_key(), *std::move(answer)});
    owners.push_back(generation.get());
  }
  const std::vector<Status> saved = resume_->save(entries);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    if (saved[i]) continue;
    log_warning(
        fmt::format("{}: the answer is not saved, and is computed anew when it is asked "
                    "for again: {}",
                    owners[i]->record().request_id, saved[i].error().message));
  }
  return static_cast<std::int32_t>(
      std::ranges::count_if(saved, [](const Status& status) { return status.has_value(); }));
}

std::optional<ApiError> Generations::refuse(const Generation& generation) const {
  const std::size_t prompts = generation.num_prompts();
  if (prompts > static_cast<std::size_t>(engine_.max_requests())) {
    // Even an empty queue has no room for the call, so a retry is useless.
    return bad_field("prompt", fmt::format("prompt: got {} prompts; this server holds {} requests "
                                           "at once (--max-queue), send fewer in one call",
                                           prompts, engine_.max_requests()));
  }
  if (held_bytes_ + counted_bytes(generation) <= kMaxHeldBytes) return std::nullopt;
  metrics_.request_refused("answers_full");
  return to_api_error(resource_exhausted(
      "too many long answers are being made; try again later, lower n, max_tokens or the number of "
      "log-probabilities, or set \"stream\": true"));
}

void Generations::take_outputs() {
  engine_.take(batch_);
  take_batch();
  metrics_.steps(batch_.steps);
  measure_engine();
  const EngineState state = engine_.state();
  if (state != EngineState::kFailed && state != EngineState::kStopped) return;
  const auto failure = engine_.failure();
  fail_all(to_api_error(unavailable(failure ? failure->message : "the engine has stopped")));
  give_progress({});  // nothing will come any more
}

void Generations::keep_streams_alive() {
  const TimePoint now = clock_.now();
  for (const auto& [id, generation] : generations_) generation->keep_alive(now, keep_alive_);
}

void Generations::end_late() {
  const TimePoint now = clock_.now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RequestId first_id = deadlines_.begin()->second;
    generations_.at(first_id)->end_late();
    retire(first_id);
  }
}

void Generations::measure_engine() {
  metrics_.engine(engine_.state(), batch_.gauges, engine_.unfinished_requests());
}

void Generations::take_batch() {
  const TimePoint now = clock_.now();
  std::int64_t later_tokens = 0;  // all but each choice's first
  touched_.clear();
  for (PinResult& result : batch_.pins) {
    const auto found = by_request_.find(result.request);
    if (found != by_request_.end()) found->second->take_pin(std::move(result.status));
  }
  for (const OutputEvent& event : batch_.events) {
    const auto found = by_request_.find(event.request);
    if (found == by_request_.end()) continue;  // ended meanwhile
    Generation& generation = *found->second;
    const TokenTiming timing =
        generation.take(event, batch_.tokens_of(event), batch_.logprobs_of(event),
                        batch_.prompt_logprobs_of(event), batch_.embedding_of(event));
    if (timing.ttft) live_.ttft.add(*timing.ttft);
    if (timing.tbt) {
      live_.tbt.add(*timing.tbt);
      later_tokens += event.num_tokens;
    }
    live_.output_tokens.add(now, event.num_tokens);
    touched_.push_back(&generation);
  }
  for (const RefusedRequest& refused : batch_.refused) {
    const auto found = by_request_.find(refused.request);
    if (found == by_request_.end()) continue;
    found->second->fail(to_api_error(refused.error));
    touched_.push_back(found->second);
  }
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  for (Generation* generation : touched_) {
    generation->flush();
    if (auto answer = generation->take_long_answer()) {
      make_answer(generation->first_id(), *std::move(answer));
    }
    if (!generation->finished()) continue;
    retry_after_.finished(now);
    retire(generation->first_id());
  }
  note_throughput(now, later_tokens);
  if (batch_.has_progress) give_progress(batch_.progress);
}

void Generations::make_answer(RequestId first_id, WholeAnswer answer) {
  // The worker also destroys the answer's data, which takes time; the loop gets the text only.
  // Shared because std::function copies its captures.
  const auto data = std::make_shared<std::optional<WholeAnswer>>(std::move(answer));
  // Shared for the same reason.
  const auto json = std::make_shared<ApiResult<std::string>>();
  const auto finished = generations_.at(first_id)->finished_flag();
  const std::size_t bytes = data->value().about_bytes;
  run_on_worker_(
      bytes,
      [data, json, finished] {
        if (!finished->load(std::memory_order_relaxed)) *json = data->value().json();
        data->reset();
      },
      [this, first_id, json] {
        const auto found = generations_.find(first_id);
        if (found == generations_.end()) return;  // the client has left, or the server stops
        found->second->answer(std::move(*json));
        retry_after_.finished(clock_.now());
        retire(first_id);
      });
}

// A step computes prompt tokens, and one token for each output token except the first of a choice.
void Generations::note_throughput(TimePoint now, std::int64_t later_tokens) {
  std::int64_t computed = 0;
  for (const StepRecord& step : batch_.steps) computed += step.tokens;
  live_.prompt_tokens.add(now, std::max<std::int64_t>(0, computed - later_tokens));
}

void Generations::closed(RequestId first_id, http::CloseReason reason) {
  const auto found = generations_.find(first_id);
  if (found == generations_.end()) return;
  found->second->close(reason);
  retire(first_id);
}

void Generations::fail_all(const ApiError& error) {
  std::vector<RequestId> ids;
  for (const auto& [id, generation] : generations_) ids.push_back(id);
  for (const RequestId id : ids) {
    generations_.at(id)->fail(error);
    retire(id);
  }
}

void Generations::retire(RequestId first_id) {
  const auto found = generations_.find(first_id);
  const Generation& generation = *found->second;
  held_bytes_ -= counted_bytes(generation);
  if (resume_ != nullptr && generation.resumed_is_complete()) {
    resume_->remove(*generation.resume_key());
  }
  if (const auto deadline = generation.deadline()) deadlines_.erase({*deadline, first_id});
  log_.write(generation.record());
  metrics_.http_request(generation.record().path, generation.record().status);
  for (std::size_t i = 0; i < generation.num_prompts(); ++i) by_request_.erase(first_id + i);
  generations_.erase(found);
}

void Generations::ask_progress(ProgressTask task) {
  CHECK(!progress_task_);
  progress_task_ = std::move(task);
  if (engine_.state() == EngineState::kReady) {
    engine_.ask_progress();
  } else {
    give_progress({});
  }
}

void Generations::give_progress(std::span<const RequestProgress> progress) {
  if (const auto task = std::exchange(progress_task_, nullptr)) task(progress);
}

const Generation* Generations::find(RequestId id) const {
  const auto found = by_request_.find(id);
  return found == by_request_.end() ? nullptr : found->second;
}

}  // namespace sluice
