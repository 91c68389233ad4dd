// ApiService's calls that the workers read, and those that generate.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/unix_time.h"
#include "server/adapter_calls.h"
#include "server/api_service.h"
#include "server/pin_call.h"
#include "server/prepare_generation.h"
#include "server/request_id.h"

namespace sluice {
namespace {

constexpr int kRetryWhenFull = 1;  // seconds
// A longer body is long work: tens of milliseconds of tokenization.
constexpr std::size_t kShortBody = 256 << 10;
// How often silent streams are looked for.
constexpr Duration kStreamWatch = std::chrono::seconds(1);
// How exactly the `timeout` of a call is kept.
constexpr Duration kDeadlineWatch = std::chrono::milliseconds(50);

ApiResult<GenerationCall> parse_call(Endpoint endpoint, std::string_view body,
                                     UnknownFields unknown) {
  switch (endpoint) {
    case Endpoint::kResponses: return parse_responses_call(body, unknown);
    case Endpoint::kMessages: return parse_messages_call(body, unknown);
    case Endpoint::kCompletion: return parse_completion_call(body, unknown);
    case Endpoint::kEmbeddings: return parse_embedding_call(body, EmbeddingUse::kVectors, unknown);
    case Endpoint::kScore: return parse_embedding_call(body, EmbeddingUse::kScore, unknown);
    case Endpoint::kRerank: return parse_embedding_call(body, EmbeddingUse::kRerank, unknown);
    case Endpoint::kPutPin: return parse_pin_call(body, unknown);
    default: return parse_chat_call(body, unknown);
  }
}

std::string_view id_prefix(const GenerationCall& call) {
  switch (call.dialect) {
    case Dialect::kResponses: return "resp_";
    case Dialect::kMessages: return "msg_";
    case Dialect::kOpenAi: break;
  }
  switch (call.kind) {
    case ApiKind::kChat: return "chatcmpl-";
    case ApiKind::kCompletion: return "cmpl-";
    case ApiKind::kEmbedding: break;
  }
  switch (call.embedding.use) {
    case EmbeddingUse::kVectors: return "embd-";
    case EmbeddingUse::kScore: return "score-";
    case EmbeddingUse::kRerank: return "rerank-";
  }
  return "";
}

}  // namespace

// ---------------------------------------------------------------- work for the workers

PromptWorker& ApiService::worker(int index, const ServedModel& model) {
  auto& made = prompt_workers_[static_cast<std::size_t>(index)][&model];
  if (made == nullptr) made = std::make_unique<PromptWorker>(model);
  return *made;
}

FindWorker ApiService::find_worker(int index, const std::string& tenant) {
  return [this, index, tenant](std::optional<std::string_view> name) -> ApiResult<PromptWorker*> {
    auto named = models_->find(tenant, name);
    if (!named) return tl::unexpected(std::move(named).error());
    return &worker(index, *named->model);
  };
}

// On a worker, before it reads the prompt: a function that is not there starts meanwhile.
void ApiService::expect(const NamedModel& named) {
  if (named.function < 0) return;
  loop_.post([this, function = named.function, adapter = named.adapter] {
    engine_.expect(function, adapter == nullptr ? -1 : adapter->content->index);
  });
}

template <class T>
void ApiService::on_worker(WorkerPool& pool, Call call, Work<T> work,
                           void (ApiService::*done)(Call, T)) {
  if (auto error = refuse_state()) {  // it may have changed while the body came
    metrics_.request_refused(state());
    return answer_error(std::move(call), *error);
  }
  // Shared by the loop and the job: the client may leave while the job runs.
  const auto shared = std::make_shared<WorkerCall>();
  shared->exchange = std::move(call.exchange);
  shared->record = std::move(call.record);
  shared->lease = std::move(call.lease);
  shared->body = shared->exchange->take_body();
  const std::size_t bytes = shared->body.size();
  shared->pool = &pool;
  shared->ticket = pool.try_submit(
      [this, shared, work = std::move(work), done](int index) {
        const StopCheck stop = shared->stop_check(clock_);
        // Shared because tasks are copied.
        const auto result = std::make_shared<T>([&]() -> T {
          if (auto status = stop(); !status) return tl::unexpected(to_api_error(status.error()));
          return work(index, shared->body, stop);
        }());
        std::string().swap(shared->body);  // freeing a long body takes milliseconds
        loop_.post([this, shared, result, done] { worked(*shared, std::move(*result), done); });
      },
      bytes <= kShortBody ? JobLength::kShort : JobLength::kLong);
  if (shared->ticket) {
    preparing_.insert(shared);
    shared->exchange->on_close(
        [this, shared](http::CloseReason reason) { abandon(*shared, reason); });
    return;
  }
  metrics_.request_refused("workers_full");
  ApiError error = to_api_error(resource_exhausted(
      fmt::format("{} requests wait to be read; try again later", options_.max_waiting_calls)));
  error.retry_after_s = kRetryWhenFull;
  answer_error({std::move(shared->exchange), std::move(shared->record), {}}, error);
}

template <class T>
void ApiService::worked(WorkerCall& work, T result, void (ApiService::*done)(Call, T)) {
  if (std::erase_if(preparing_, [&](const auto& one) { return one.get() == &work; }) > 0) {
    work.exchange->drop_body();
    if (!work.exchange->closed()) {
      if (cancelled_) result = tl::unexpected(shutting_down());
      return (this->*done)(
          {std::move(work.exchange), std::move(work.record), std::move(work.lease)},
          std::move(result));
    }
    note_abandoned(work, http::CloseReason::kPeerGone);
  }
  // The job shares `work` and may end later, on its own thread, where neither may end.
  work.exchange.reset();
  work.lease = {};
}

void ApiService::abandon(WorkerCall& work, http::CloseReason reason) {
  work.abandoned = true;
  // A running job ends soon and calls worked(); a waiting job never starts.
  if (!work.ticket || !work.pool->drop(*work.ticket)) return;
  if (std::erase_if(preparing_, [&](const auto& one) { return one.get() == &work; }) == 0) return;
  work.exchange->drop_body();
  note_abandoned(work, reason);
}

void ApiService::note_abandoned(WorkerCall& work, http::CloseReason reason) {
  work.record.status = kStatusClientGone;
  work.record.close_reason = close_reason_name(reason);
  work.record.total = clock_.now() - work.exchange->request().received;
  work.lease = {};
  note(work.record);
}

// The pool always accepts these jobs; the number of calls in the engine bounds their number.
void ApiService::run_on_worker(std::size_t bytes, std::function<void()> work,
                               std::function<void()> done) {
  pool_.submit(
      [this, work = std::move(work), done = std::move(done)](int) {
        work();
        loop_.post(done);
      },
      bytes <= kShortBody ? JobLength::kShort : JobLength::kLong);
}

bool ApiService::take_place(Call& call) {
  if (keys_ == nullptr) return true;
  if (options_.refuse_key) {
    if (const auto error = options_.refuse_key(call.record.client)) {
      metrics_.key_refused(call.record.client);
      answer_error(std::move(call), *error);
      return false;
    }
  }
  auto lease = quotas_.begin(call.record.client, keys_->limits_of(call.record.client));
  if (!lease) {
    metrics_.key_refused(call.record.client);
    answer_error(std::move(call), lease.error());
    return false;
  }
  call.lease = *std::move(lease);
  return true;
}

void ApiService::resume(const ResumeStore& store, std::string_view path, std::string_view body,
                        std::string_view tenant, std::string id, const EngineLimits& limits,
                        PreparedGeneration& prepared) {
  if (!is_resumable(prepared)) return;
  PromptPart& part = prepared.parts.front();
  prepared.resume = ResumeStore::Key{std::string(tenant), std::move(id),
                                     part.prompt.block_hash_root, store.digest_body(path, body)};
  auto answer = store.find(*prepared.resume);
  if (!answer) return;
  // A server with other limits has made it, so that it cannot go on here.
  const std::size_t said = answer->tokens.size();
  if (said >= static_cast<std::size_t>(part.sampling.max_tokens) ||
      part.prompt.ids.size() + said >= static_cast<std::size_t>(limits.max_model_len)) {
    return;
  }
  part.sampling.seed = answer->seed;
  prepared.resumed = std::move(answer->tokens);
}

void ApiService::prepare(Call call, Endpoint endpoint) {
  if (!take_place(call)) return;
  const std::string key_name(call.record.client);
  // Only a client that chose its id can ask again with it.
  const std::string* given = call.exchange->request().header("X-Request-Id");
  const std::string id =
      resume_ != nullptr && given != nullptr && *given == call.record.request_id ? *given : "";
  const std::string path(call.record.path);
  on_worker<Prepared>(
      pool_, std::move(call),
      [this, endpoint, key_name, id, path, store = resume_](int index, std::string_view body,
                                                            const StopCheck& stop) -> Prepared {
        auto parsed = parse_call(endpoint, body, options_.unknown_fields);
        if (!parsed) return tl::unexpected(std::move(parsed).error());
        auto named = models_->find(key_name, parsed->model);
        if (!named) return tl::unexpected(std::move(named).error());
        expect(*named);
        auto prepared = prepare_generation(worker(index, *named->model), *std::move(parsed),
                                           key_name, stop, named->adapter);
        if (!prepared) return tl::unexpected(std::move(prepared).error());
        prepared->function = named->function;
        if (!id.empty()) resume(*store, path, body, key_name, id, named->model->limits, *prepared);
        return NamedGeneration{*std::move(prepared), *std::move(named)};
      },
      &ApiService::prepared);
}

void ApiService::prepared(Call call, Prepared result) {
  if (!result) return answer_error(std::move(call), result.error());
  PreparedGeneration& prepared = result->prepared;
  KeyQuotas::Prompt prompt{static_cast<std::int64_t>(prepared.parts.size()), 0,
                           prepared.call.priority};
  for (const PromptPart& part : prepared.parts) {
    prompt.tokens += static_cast<std::int64_t>(part.prompt.ids.size());
  }
  const auto refused = quotas_.take_prompt(call.lease, prompt);
  for (http::Header& header : quotas_.headers(call.lease)) {
    call.exchange->add_header(std::move(header));
  }
  if (refused) {
    metrics_.key_refused(call.lease.name());
    return answer_error(std::move(call), *refused);
  }
  AnswerHead head;
  head.kind = prepared.call.kind;
  head.dialect = prepared.call.dialect;
  head.id = make_request_id(id_prefix(prepared.call));
  head.repeated_json = std::move(prepared.call.repeated_json);
  head.created = unix_seconds();
  head.model = std::move(result->named.name);
  head.system_fingerprint = fingerprint_of(*result->named.model);
  call.record.model = head.model;
  if (prepared.call.pin) {
    PinOrder& pin = *prepared.call.pin;
    pin.tenant = call.record.client;
    pin.id = pin_id_of(call.exchange->request().path);
    pin.model = head.model;
    if (keys_ != nullptr) pin.max_bytes = keys_->limits_of(pin.tenant).pinned_bytes;
  }
  if (call.record.client.empty()) call.record.client = prepared.call.user;
  note_ignored(*call.exchange, prepared.call.ignored_fields);
  generations_.start(std::move(call.exchange), std::move(prepared), std::move(head),
                     result->named.model->tokenizer, std::move(call.record), std::move(call.lease));
  watch_streams();
  watch_deadlines();
}

void ApiService::note_ignored(http::Exchange& exchange, std::span<const IgnoredField> fields) {
  if (fields.empty()) return;
  exchange.add_header({std::string(kIgnoredFieldsHeader), ignored_fields_value(fields)});
  for (const std::string& line : ignored_fields_.new_lines(fields)) log_warning(line);
}

void ApiService::watch_streams() {
  if (watches_streams_ || options_.stream_keep_alive == Duration{0}) return;
  if (generations_.active() == 0) return;
  watches_streams_ = true;
  loop_.after(std::min(options_.stream_keep_alive, kStreamWatch), [this] {
    watches_streams_ = false;
    generations_.keep_streams_alive();
    watch_streams();
  });
}

void ApiService::watch_deadlines() {
  if (watches_deadlines_ || !generations_.any_deadline()) return;
  watches_deadlines_ = true;
  loop_.after(kDeadlineWatch, [this] {
    watches_deadlines_ = false;
    generations_.end_late();
    watch_deadlines();
  });
}

void ApiService::tokenize(Call call, Endpoint endpoint) {
  const std::string key_name(call.record.client);
  on_worker<Text>(
      pool_, std::move(call),
      [this, endpoint, key_name](int index, std::string_view body, const StopCheck& stop) {
        const FindWorker find = find_worker(index, key_name);
        const UnknownFields unknown = options_.unknown_fields;
        if (endpoint == Endpoint::kCountTokens) return count_answer(find, body, unknown, stop);
        return endpoint == Endpoint::kTokenize ? tokenize_answer(find, body, unknown, stop)
                                               : detokenize_answer(find, body, unknown);
      },
      &ApiService::text_ready);
}

// A load has a thread of its own, because it rests beside requests that run. Its end does not
// depend on the client, which may have a short time limit and look again later.
void ApiService::load_adapter_at_pace(Call call) {
  on_worker<ApiResult<std::string>>(
      loads_, std::move(call),
      [this](int /*worker*/, std::string_view body, const StopCheck&) {
        const ThreadCpuClock worked;
        WorkPace pace(
            options_.load_pace, worked, [this] { return engine_.unfinished_requests() > 0; },
            [this](Duration time) { return load_pause_.wait(time); });
        return load_adapter(*adapters_, options_.adapter_folder, body, pace.check());
      },
      &ApiService::adapters_changed);
}

void ApiService::remove_adapter(Call call) {
  on_worker<ApiResult<std::string>>(
      pool_, std::move(call),
      [this](int /*worker*/, std::string_view body, const StopCheck&) {
        return unload_adapter(*adapters_, body);
      },
      &ApiService::adapters_changed);
}

void ApiService::adapters_changed(Call call, ApiResult<std::string> result) {
  if (!result) return answer_error(std::move(call), result.error());
  http::Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = *std::move(result);
  answer(std::move(call), std::move(response));
}

void ApiService::text_ready(Call call, Text result) {
  if (!result) return answer_error(std::move(call), result.error());
  note_ignored(*call.exchange, result->ignored_fields);
  answer_json(std::move(call), 200, std::move(result->json));
}

}  // namespace sluice
