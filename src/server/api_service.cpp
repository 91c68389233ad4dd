#include "server/api_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "server/error_response.h"
#include "server/form_body.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/request_id.h"
#include "server/response_json.h"

namespace sluice {
namespace {

constexpr int kRetryWhileLoading = 1;   // seconds
constexpr int kRetryWhileDraining = 5;  // time for another instance to take over
constexpr std::string_view kRequestIdHeader = "X-Request-Id";
constexpr std::string_view kApiKeyHeader = "X-Api-Key";  // Anthropic's

ApiError make_error(int status, std::string message, std::string code) {
  ApiError error;
  error.status = status;
  if (status >= 500) error.type = "server_error";
  error.message = std::move(message);
  error.code = std::move(code);
  return error;
}

// The same for every answer of servers of one version, one model and one set of number formats.
std::string system_fingerprint(std::string_view version, const ServedModel& model) {
  const Hash128 root = block_hash_root(model.kv_identity);
  const std::string text = fmt::format("{} {:016x}{:016x}", version, root.high, root.low);
  return "fp_" + to_hex(sha256(text)).substr(0, 12);
}

std::string_view kind_name(ApiKind kind) {
  switch (kind) {
    case ApiKind::kChat: return "chat";
    case ApiKind::kCompletion: return "completion";
    case ApiKind::kEmbedding: return "embedding";
  }
  return "";
}

}  // namespace

ApiError ApiService::shutting_down() {
  return make_error(503, "the server is shutting down", "unavailable");
}

ApiService::ApiService(Options options, const ApiKeys* keys, http::EventLoop& loop,
                       EngineLoop& engine, const Clock& clock, AccessLog& log,
                       ServerMetrics& metrics)
    : options_(std::move(options)),
      keys_(keys),
      loop_(loop),
      engine_(engine),
      clock_(clock),
      log_(log),
      metrics_(metrics),
      quotas_(clock, engine.max_requests()),
      generations_(
          engine,
          [this](std::size_t bytes, std::function<void()> work, std::function<void()> done) {
            run_on_worker(bytes, std::move(work), std::move(done));
          },
          clock, log, metrics, options_.stream_keep_alive),
      started_(clock.now()),
      prompt_workers_(static_cast<std::size_t>(options_.workers)),
      pool_(options_.workers, options_.max_waiting_calls, options_.urgent),
      loads_(1, options_.max_waiting_calls) {}

ApiService::~ApiService() {
  for (const auto& work : preparing_) work->abandoned = true;  // ends what runs
  load_pause_.stop();
}

void ApiService::set_model(const ServedModel& model, std::vector<StatusSpan> startup) {
  adapters_ = &model;
  set_models(one_model_.emplace(model), std::move(startup));
}

void ApiService::set_models(const ServedModels& models, std::vector<StatusSpan> startup) {
  models_ = &models;
  startup_ = std::move(startup);
}

const std::string& ApiService::fingerprint_of(const ServedModel& model) {
  std::string& fingerprint = fingerprints_[&model];
  if (fingerprint.empty()) fingerprint = system_fingerprint(options_.version, model);
  return fingerprint;
}

void ApiService::engine_woke() {
  generations_.take_outputs();
  for (PinAnswer& answer : generations_.take_pin_answers()) pins_answered(std::move(answer));
  if (engine_.state() == EngineState::kReady) return;
  const auto failure = engine_.failure();
  fail_pin_calls(to_api_error(unavailable(failure ? failure->message : "the engine has stopped")));
}

void ApiService::drain() { draining_ = true; }

// Shared, as the header says.
void ApiService::set_resume_store(std::shared_ptr<const ResumeStore> store) {
  resume_ = std::move(store);
  generations_.set_resume_store(resume_);
}

std::int32_t ApiService::save_running() const { return generations_.save_unfinished(); }

void ApiService::cancel_all() {
  cancelled_ = true;
  load_pause_.stop();
  for (const auto& work : preparing_) work->abandoned = true;
  generations_.fail_all(shutting_down());
  fail_pin_calls(shutting_down());
}

std::string_view ApiService::state() const {
  const EngineState engine = engine_.state();
  if (engine == EngineState::kFailed) return "failed";
  if (draining_ || engine == EngineState::kStopped) return "draining";
  return engine == EngineState::kReady && models_ != nullptr ? "ready" : "loading";
}

// ---------------------------------------------------------------- access control

std::optional<ApiError> ApiService::refuse_state() const {
  const std::string_view now = state();
  if (now == "ready") return std::nullopt;
  if (now == "failed") {
    const auto failure = engine_.failure();
    return make_error(503, failure ? failure->message : "the engine has failed", "unavailable");
  }
  const bool loading = now == "loading";
  ApiError error = make_error(503, loading ? "the model is loading" : "the server is shutting down",
                              "unavailable");
  error.retry_after_s = loading ? kRetryWhileLoading : kRetryWhileDraining;
  return error;
}

std::optional<ApiError> ApiService::refuse_stranger(const http::Request& head) const {
  if (keys_ == nullptr || key_of(head) != nullptr) return std::nullopt;
  return make_error(401,
                    head.header("Authorization") == nullptr && head.header(kApiKeyHeader) == nullptr
                        ? "an API key is missing; send it as 'Authorization: Bearer KEY'"
                        : "Incorrect API key provided: this server does not know it",
                    "invalid_api_key");
}

const OwnRoute* ApiService::own_route(const http::Request& head) const {
  const std::string_view method = head.method == "HEAD" ? std::string_view("GET") : head.method;
  for (const OwnRoute& route : options_.own_routes) {
    if (route.path == head.path && route.method == method) return &route;
  }
  return nullptr;
}

std::optional<ApiError> ApiService::refuse(const Route& route, const http::Request& head) const {
  if (route.needs_key) {
    if (auto error = refuse_stranger(head)) return error;
  }
  if (route.endpoint == Endpoint::kLoadAdapter || route.endpoint == Endpoint::kUnloadAdapter) {
    if (auto error = refuse_change(head)) return error;
  }
  return route.needs_model ? refuse_state() : std::nullopt;
}

std::optional<ApiError> ApiService::refuse_change(const http::Request& head) const {
  if (options_.adapter_folder.empty()) {
    return make_error(403,
                      "adapters cannot be loaded here; start the server with --adapter-dir and an "
                      "admin key",
                      "forbidden");
  }
  const ApiKey* key = key_of(head);
  if (key != nullptr && key->is_admin) return std::nullopt;
  return make_error(403, "loading adapters needs an admin key (role=admin in --api-key-file)",
                    "forbidden");
}

std::optional<http::Response> ApiService::admit(const http::Request& head) {
  const RouteMatch match = find_route(head.method, head.path);
  std::optional<ApiError> error = options_.origins.refuse(head);
  if (!error && !options_.origins.cors_origin(head).empty()) {
    if (auto preflight = preflight_response(head)) {
      add_cors(head, *preflight);
      return preflight;
    }
  }
  const bool wrong_method = !error && match.route == nullptr && !match.allowed.empty();
  if (error) {
    // Refused for every path.
  } else if (const OwnRoute* own = own_route(head)) {
    if (own->needs_key) error = refuse_stranger(head);
  } else if (match.route != nullptr) {
    error = refuse(*match.route, head);
  } else if (wrong_method) {
    error =
        make_error(405, fmt::format("{} takes {}, not {}", head.path, match.allowed, head.method),
                   "method_not_allowed");
  } else {
    error = make_error(
        404,
        fmt::format("there is nothing at {}; this server has {}; GET /openapi.json describes them",
                    head.path, api_endpoints()),
        "not_found");
  }
  if (!error) return std::nullopt;
  AccessRecord record = record_of(head);
  http::Response response = error_response(*error, record.request_id, dialect_of(head.path));
  if (wrong_method) response.headers.push_back({"Allow", match.allowed});
  add_cors(head, response);
  record.status = response.status;
  record.bytes = static_cast<std::int64_t>(response.body.size());
  note(record);
  if (error->status == 503) metrics_.request_refused(state());
  return response;
}

void ApiService::add_cors(const http::Request& head, http::Response& response) const {
  const std::string_view origin = options_.origins.cors_origin(head);
  if (origin.empty()) return;
  for (http::Header& header : cors_headers(origin)) response.headers.push_back(std::move(header));
}

http::Response ApiService::refusal(const http::Request& head, int status, std::string message) {
  ApiError error = make_error(status, std::move(message), "");
  if (status == 503) error.retry_after_s = kRetryWhileLoading;
  AccessRecord record = record_of(head);
  http::Response response = error_response(error, record.request_id, dialect_of(head.path));
  add_cors(head, response);
  record.status = status;
  record.bytes = static_cast<std::int64_t>(response.body.size());
  note(record);
  return response;
}

const ApiKey* ApiService::key_of(const http::Request& head) const {
  if (keys_ == nullptr) return nullptr;
  if (const ApiKey* key = keys_->find(head.header("Authorization"))) return key;
  const std::string* key = head.header(kApiKeyHeader);
  return key == nullptr ? nullptr : keys_->find_key(*key);
}

AccessRecord ApiService::record_of(const http::Request& request) const {
  AccessRecord record;
  const std::string* id = request.header(kRequestIdHeader);
  record.request_id = id != nullptr && is_sane_request_id(*id) ? *id : make_request_id("req-");
  record.peer = request.peer;
  record.method = request.method;
  record.path = request.path;
  if (const ApiKey* key = key_of(request)) record.client = key->name;
  return record;
}

// ---------------------------------------------------------------- answers

void ApiService::handle(ExchangePtr exchange) {
  const http::Request& request = exchange->request();
  if (const OwnRoute* own = own_route(request)) return handle_own(*own, std::move(exchange));
  const RouteMatch match = find_route(request.method, request.path);
  CHECK(match.route != nullptr);  // admit() has checked it
  Call call{std::move(exchange), record_of(request), {}};
  if (match.route->needs_key && keys_ != nullptr && key_of(request) == nullptr) {
    // The key was removed from the file while the body came.
    return answer_error(std::move(call),
                        make_error(401, "Incorrect API key provided: this server does not know it",
                                   "invalid_api_key"));
  }
  if (const auto error = refuse_form(request)) return answer_error(std::move(call), *error);
  const std::string_view origin = options_.origins.cors_origin(request);
  if (!origin.empty()) {
    for (http::Header& header : cors_headers(origin)) call.exchange->add_header(std::move(header));
  }
  switch (match.route->endpoint) {
    case Endpoint::kPage: return answer_page(std::move(call));
    case Endpoint::kStatus: return answer_status(std::move(call));
    case Endpoint::kHealth: return answer_health(std::move(call));
    case Endpoint::kReady: return answer_ready(std::move(call));
    case Endpoint::kVersion:
      return answer_json(std::move(call), 200,
                         fmt::format(R"({{"version":"{}"}})", options_.version));
    case Endpoint::kOpenApi:
      return answer_json(
          std::move(call), 200,
          openapi_json(options_.version, options_.own_routes, engine_.supports_pins().has_value()));
    case Endpoint::kMetrics: return answer_metrics(std::move(call));
    case Endpoint::kModels:
    case Endpoint::kModel: return answer_models(std::move(call), match.route->endpoint);
    case Endpoint::kChat:
    case Endpoint::kCompletion:
    case Endpoint::kEmbeddings:
    case Endpoint::kScore:
    case Endpoint::kRerank:
    case Endpoint::kResponses:
    case Endpoint::kMessages: return prepare(std::move(call), match.route->endpoint);
    case Endpoint::kCountTokens:
    case Endpoint::kTokenize:
    case Endpoint::kDetokenize: return tokenize(std::move(call), match.route->endpoint);
    case Endpoint::kLoadAdapter: return load_adapter_at_pace(std::move(call));
    case Endpoint::kUnloadAdapter: return remove_adapter(std::move(call));
    case Endpoint::kPutPin: return put_pin(std::move(call));
    case Endpoint::kListPins: return ask_pins(std::move(call), PinAction::kList);
    case Endpoint::kShowPin: return ask_pins(std::move(call), PinAction::kShow);
    case Endpoint::kRemovePin: return ask_pins(std::move(call), PinAction::kRemove);
  }
}

void ApiService::handle_own(const OwnRoute& route, ExchangePtr exchange) {
  const http::Request& request = exchange->request();
  // Shared because the route may copy its callback.
  const auto call = std::make_shared<Call>(Call{std::move(exchange), record_of(request), {}});
  // The key may have left the file while the body came.
  if (auto error = refuse_stranger(request); error && route.needs_key) {
    return answer_error(std::move(*call), *error);
  }
  if (const auto error = refuse_form(request)) return answer_error(std::move(*call), *error);
  const std::string_view origin = options_.origins.cors_origin(request);
  if (!origin.empty()) {
    for (http::Header& header : cors_headers(origin)) {
      call->exchange->add_header(std::move(header));
    }
  }
  const ApiKey* key = key_of(request);
  route.handle(request, key == nullptr ? ApiKey() : *key, [this, call](http::Response response) {
    answer(std::move(*call), std::move(response));
  });
}

// The metric is labelled with the route, because the client's path could be anything.
void ApiService::note(const AccessRecord& record) {
  const RouteMatch match = find_route(record.method, record.path);
  const bool own = std::ranges::find(options_.own_routes, record.path, &OwnRoute::path) !=
                   options_.own_routes.end();
  const std::string_view other = own ? std::string_view(record.path) : "other";
  metrics_.http_request(match.route == nullptr ? other : match.route->path, record.status);
  log_.write(record);
}

void ApiService::answer(Call call, http::Response response) {
  call.record.status = response.status;
  call.record.bytes = static_cast<std::int64_t>(response.body.size());
  call.record.total = clock_.now() - call.exchange->request().received;
  if (call.exchange->closed()) call.record.close_reason = kPeerGone;
  const bool has_id = !response.headers.empty() && response.headers.back().name == kRequestIdHeader;
  if (!has_id) response.headers.push_back({std::string(kRequestIdHeader), call.record.request_id});
  call.exchange->respond(std::move(response));
  note(call.record);
}

void ApiService::answer_error(Call call, const ApiError& error) {
  const Dialect dialect = dialect_of(call.exchange->request().path);
  answer(std::move(call), error_response(error, {}, dialect));
}

void ApiService::answer_json(Call call, int status, std::string body) {
  http::Response response;
  response.status = status;
  response.body = std::move(body);
  answer(std::move(call), std::move(response));
}

void ApiService::answer_page(Call call) {
  static const http::Response page = page_response(page_html());
  answer(std::move(call), page);
}

// Probes made for vLLM or llama.cpp take 200 to mean that calls are answered, so it is 503 while
// the model loads. A server that drains is well. A failed engine is reported to the supervisor.
void ApiService::answer_health(Call call) {
  const std::string_view now = state();
  const bool healthy = now == "ready" || now == "draining";
  answer_json(std::move(call), healthy ? 200 : 503,
              fmt::format(R"({{"status":"{}"}})", healthy ? "ok" : now));
}

void ApiService::answer_ready(Call call) {
  const std::string_view now = state();
  answer_json(std::move(call), now == "ready" ? 200 : 503, fmt::format(R"({{"state":"{}"}})", now));
}

void ApiService::answer_metrics(Call call) {
  generations_.measure_engine();
  if (options_.open_connections) metrics_.open_connections(options_.open_connections());
  if (options_.function_turns) metrics_.function_turns(options_.function_turns());
  http::Response response;
  response.content_type = kPrometheusContentType;
  metrics_.write(response.body);
  if (options_.own_metrics) options_.own_metrics(response.body);
  answer(std::move(call), std::move(response));
}

void ApiService::answer_models(Call call, Endpoint endpoint) {
  if (auto error = refuse_state()) {  // it may have changed since admit()
    return answer_error(std::move(call), *error);
  }
  const std::string_view tenant = call.record.client;
  if (endpoint == Endpoint::kModels) {
    std::string list = models_json(models_->cards(tenant));
    return answer_json(std::move(call), 200, std::move(list));
  }
  const auto card = models_->card(tenant, model_id_of(call.exchange->request().path));
  if (!card) return answer_error(std::move(call), card.error());
  answer_json(std::move(call), 200, model_json(*card));
}

std::vector<StatusRequest> ApiService::status_requests(
    std::span<const RequestProgress> progress) const {
  std::vector<StatusRequest> requests;
  const TimePoint now = clock_.now();
  for (const RequestProgress& one : progress) {
    const Generation* generation = generations_.find(one.request);
    if (generation == nullptr) continue;
    StatusRequest request;
    request.id = generation->record().request_id;
    request.client = generation->client();
    request.kind = kind_name(generation->kind());
    request.age = now - generation->received();
    request.ttft = generation->ttft();
    request.progress = one;
    requests.push_back(std::move(request));
  }
  std::sort(requests.begin(), requests.end(),
            [](const StatusRequest& a, const StatusRequest& b) { return a.age > b.age; });
  return requests;
}

std::string ApiService::status_body(std::span<const StatusRequest> requests) const {
  const TimePoint now = clock_.now();
  const LiveStats& live = generations_.live();
  ServerStatus status;
  status.model = options_.model_name;
  status.state = state();
  status.uptime = now - started_;
  status.gauges = generations_.gauges();
  status.prompt_tps = live.prompt_tokens.per_second(now);
  status.generation_tps = live.output_tokens.per_second(now);
  status.ttft = live.ttft.percentiles();
  status.tbt = live.tbt.percentiles();
  status.requests = requests;
  status.startup = startup_;
  return status_json(status);
}

// The tenant whose requests the caller may see; empty: all tenants.
std::string_view ApiService::visible_tenant(const http::Request& head) const {
  if (keys_ == nullptr) return {};
  const ApiKey* key = key_of(head);
  // A key that was removed after handle() sees nothing: no tenant has this name.
  if (key == nullptr) return " ";
  return key->is_admin ? std::string_view() : std::string_view(key->name);
}

// One answer from the engine serves every call between two steps, and each tenant's body is built
// once: with a thousand requests a body takes milliseconds.
void ApiService::answer_status(Call call) {
  status_calls_.push_back(std::move(call));
  if (status_calls_.size() > 1) return;
  generations_.ask_progress([this](std::span<const RequestProgress> progress) {
    const std::vector<StatusRequest> all = status_requests(progress);
    std::map<std::string_view, std::string> bodies;  // by tenant
    for (Call& waiting : std::exchange(status_calls_, {})) {
      const std::string_view tenant = visible_tenant(waiting.exchange->request());
      const auto [body, is_new] = bodies.try_emplace(tenant);
      if (is_new) {
        std::vector<StatusRequest> visible;
        std::ranges::copy_if(all, std::back_inserter(visible), [&](const StatusRequest& request) {
          return tenant.empty() || request.client == tenant;
        });
        body->second = status_body(visible);
      }
      answer_json(std::move(waiting), 200, body->second);
    }
  });
}

}  // namespace sluice
