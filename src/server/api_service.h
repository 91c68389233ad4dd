// ApiService: OpenAI's API on top of the engine loop. It checks whether a client may call, finds
// the endpoint, hands long work to the workers, and answers. It holds no sockets and no engine.
// Owner: the command. Threads: the event loop's; work for the workers runs on theirs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/work_pace.h"
#include "front/prompt_builder.h"
#include "front/served_model.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "server/access_log.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/engine_loop.h"
#include "server/generations.h"
#include "server/ignored_fields.h"
#include "server/key_quotas.h"
#include "server/origin_policy.h"
#include "server/own_route.h"
#include "server/routes.h"
#include "server/served_models.h"
#include "server/server_metrics.h"
#include "server/status_json.h"
#include "server/tokenize_answer.h"
#include "server/worker_call.h"
#include "server/worker_pool.h"

namespace sluice {

class ApiService final : public http::Handler {
 public:
  struct Options {
    std::string model_name;
    std::string version;
    int workers = 2;
    // Calls that may wait to be parsed and tokenized; further calls are answered 429.
    std::size_t max_waiting_calls = 1024;
    OriginPolicy origins;
    UnknownFields unknown_fields = UnknownFields::kIgnore;
    // Adapters below this folder may be loaded and unloaded with an admin key; empty: none may.
    std::string adapter_folder;
    WorkPace::Options load_pace;  // of loads of adapters, while requests run or wait
    Duration stream_keep_alive = std::chrono::seconds(15);  // 0: no comments in silent streams
    UrgentWork* urgent = nullptr;  // where short calls are marked while the workers have them
    // The HTTP server's count, for /metrics.
    std::function<std::int64_t()> open_connections;
    std::vector<OwnRoute> own_routes;  // REQUIRES: there are keys, if one needs a key
    // Refuses calls of a key that generate, beside the limits of the key; empty: none.
    std::function<std::optional<ApiError>(std::string_view key)> refuse_key;
    // The turns of function processes, for /metrics; empty: there are none.
    std::function<FunctionTurns()> function_turns;
    // Appends metrics of the command's own to /metrics; empty: there are none.
    std::function<void(std::string& out)> own_metrics;
  };

  // `keys`: nullptr = no key is needed; the owner may replace the keys between two tasks of the
  // loop. REQUIRES: all outlive it.
  ApiService(Options options, const ApiKeys* keys, http::EventLoop& loop, EngineLoop& engine,
             const Clock& clock, AccessLog& log, ServerMetrics& metrics);
  ~ApiService() override;  // stops the workers

  // The model is loaded. Calls are taken once the engine is ready, too.
  // REQUIRES: the model outlives the service.
  void set_model(const ServedModel& model, std::vector<StatusSpan> startup);
  // The same for a server of several models. REQUIRES: they outlive the service.
  void set_models(const ServedModels& models, std::vector<StatusSpan> startup);
  // Where save_running() puts answers, and where calls look for theirs. Before set_model().
  // Shared with the jobs of the workers.
  void set_resume_store(std::shared_ptr<const ResumeStore> store);
  // Saves the answers that can go on in a later server; before cancel_all(). Returns their number.
  std::int32_t save_running() const;
  // After each wake-up of the engine loop.
  void engine_woke();
  // No new calls from now on; those that run go on.
  void drain();
  // Ends all calls, with 503 or an error event; calls that a worker has end when the worker returns
  // them.
  void cancel_all();
  // Calls that are not answered yet, including those that the workers have.
  std::size_t active() const { return preparing_.size() + generations_.active(); }
  // Counts what tenants have used of their limits.
  KeyQuotas& quotas() { return quotas_; }
  // "loading", "ready", "draining", "failed".
  std::string_view state() const;

  std::optional<http::Response> admit(const http::Request& head) override;
  void handle(ExchangePtr exchange) override;
  http::Response refusal(const http::Request& head, int status, std::string message) override;

 private:
  // A request on its way to an answer.
  struct Call {
    ExchangePtr exchange;
    AccessRecord record;
    KeyQuotas::Lease lease;  // of a call that generates, with a key
  };
  struct NamedGeneration {
    PreparedGeneration prepared;
    NamedModel named;
  };
  using Prepared = ApiResult<NamedGeneration>;
  using Text = ApiResult<TokenizeReply>;
  // Lets the call go on from the answer that an earlier server has saved, or save its own.
  static void resume(const ResumeStore& store, std::string_view path, std::string_view body,
                     std::string_view tenant, std::string id, const EngineLimits& limits,
                     PreparedGeneration& prepared);

  static ApiError shutting_down();
  std::optional<ApiError> refuse(const Route& route, const http::Request& head) const;
  std::optional<ApiError> refuse_stranger(const http::Request& head) const;
  const OwnRoute* own_route(const http::Request& head) const;
  void handle_own(const OwnRoute& route, ExchangePtr exchange);
  std::optional<ApiError> refuse_state() const;
  const ApiKey* key_of(const http::Request& head) const;
  AccessRecord record_of(const http::Request& request) const;
  void note(const AccessRecord& record);
  void answer(Call call, http::Response response);
  void answer_error(Call call, const ApiError& error);
  void answer_json(Call call, int status, std::string body);
  void answer_page(Call call);
  void answer_status(Call call);
  std::string status_body(std::span<const StatusRequest> requests) const;
  std::string_view visible_tenant(const http::Request& head) const;
  void add_cors(const http::Request& head, http::Response& response) const;
  void answer_health(Call call);
  void answer_ready(Call call);
  void answer_metrics(Call call);
  void answer_models(Call call, Endpoint endpoint);
  std::vector<StatusRequest> status_requests(std::span<const RequestProgress> progress) const;

  // Takes a place for the call from its key's limits; false: answered.
  bool take_place(Call& call);
  void prepare(Call call, Endpoint endpoint);
  void prepared(Call call, Prepared result);
  void tokenize(Call call, Endpoint endpoint);
  void load_adapter_at_pace(Call call);
  void remove_adapter(Call call);
  void adapters_changed(Call call, ApiResult<std::string> result);
  std::optional<ApiError> refuse_change(const http::Request& head) const;
  void put_pin(Call call);
  void ask_pins(Call call, PinAction action);
  void pins_answered(PinAnswer answer);
  void fail_pin_calls(const ApiError& error);
  // Runs `work` on a worker of the pool, then `done` on the loop, unless the client leaves before.
  template <class T>
  using Work = std::function<T(int worker, std::string_view body, const StopCheck&)>;
  template <class T>
  void on_worker(WorkerPool& pool, Call call, Work<T> work, void (ApiService::*done)(Call, T));
  template <class T>
  void worked(WorkerCall& work, T result, void (ApiService::*done)(Call, T));
  // The client of a call that the workers have is gone.
  void abandon(WorkerCall& work, http::CloseReason reason);
  void note_abandoned(WorkerCall& work, http::CloseReason reason);
  void run_on_worker(std::size_t bytes, std::function<void()> work, std::function<void()> done);
  void text_ready(Call call, Text result);
  // Names the fields in the answer's header, and new ones in the log.
  void note_ignored(http::Exchange& exchange, std::span<const IgnoredField> fields);
  // Runs while calls are active.
  void watch_streams();
  // Runs while calls with a `timeout` are active.
  void watch_deadlines();
  PromptWorker& worker(int index, const ServedModel& model);
  FindWorker find_worker(int index, const std::string& tenant);
  void expect(const NamedModel& named);
  const std::string& fingerprint_of(const ServedModel& model);

  const Options options_;
  const ApiKeys* keys_;
  http::EventLoop& loop_;
  EngineLoop& engine_;
  const Clock& clock_;
  AccessLog& log_;
  ServerMetrics& metrics_;
  KeyQuotas quotas_;
  Generations generations_;
  const TimePoint started_;
  std::optional<OneModel> one_model_;      // of set_model()
  const ServedModels* models_ = nullptr;   // null: not loaded yet
  const ServedModel* adapters_ = nullptr;  // whose adapters may change; null: none
  std::map<const ServedModel*, std::string> fingerprints_;
  std::vector<StatusSpan> startup_;
  bool draining_ = false;
  std::shared_ptr<const ResumeStore> resume_;  // null: none. Shared with the workers' jobs
  bool cancelled_ = false;
  bool watches_streams_ = false;
  bool watches_deadlines_ = false;
  IgnoredFieldLog ignored_fields_;
  std::unordered_set<std::shared_ptr<WorkerCall>> preparing_;  // calls that the workers have
  std::vector<Call> status_calls_;                             // wait for the engine's answer
  // Likewise, by PinQuestion::ticket.
  struct PinCall {
    Call call;
    PinAction action = PinAction::kShow;
  };
  std::map<std::uint64_t, PinCall> pin_calls_;
  std::uint64_t next_pin_ticket_ = 1;
  // By worker, then by model; each is its worker's.
  std::vector<std::map<const ServedModel*, std::unique_ptr<PromptWorker>>> prompt_workers_;
  Pause load_pause_;  // of `loads_`
  // Last: their threads end before what they use.
  WorkerPool pool_;
  WorkerPool loads_;  // one thread, which loads adapters
};

}  // namespace sluice
