#include "apps/serve.h"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "apps/exit_code.h"
#include "apps/isolated_model.h"
#include "apps/kv_disk.h"
#include "apps/load_served_engine.h"
#include "apps/model_place.h"
#include "apps/serve_settings.h"
#include "apps/server_drain.h"
#include "apps/server_socket.h"
#include "apps/service_manager.h"
#include "base/log.h"
#include "function/tenant_loops.h"
#include "function/turn_service.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "http/tls.h"
#include "model/model_config.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/api_service.h"
#include "server/threaded_engine_loop.h"

namespace sluice {
namespace {

constexpr int kMmapThreshold = 256 << 10;

class Server {
 public:
  Server(const ServeArguments& arguments, const ServeSettings& settings,
         std::optional<ApiKeys> keys, std::unique_ptr<http::TlsContext> tls,
         std::unique_ptr<AccessLog> access_log, std::unique_ptr<TurnService> turns)
      : arguments_(arguments),
        settings_(settings),
        timeline_(clock_),
        tls_(std::move(tls)),
        turns_(std::move(turns)),
        keys_(std::move(keys)),
        access_log_(std::move(access_log)),
        engine_(make_engine_loop()),
        metrics_(metrics_options(arguments, settings)),
        service_(service_options(), keys_ ? &*keys_ : nullptr, loop_, engine_, clock_, *access_log_,
                 metrics_) {}

  Status start() {
    if (settings_.lend) {
      ASSIGN_OR_RETURN(lend_, LendSession::open(*settings_.lend, loop_, clock_,
                                                [this](const LendingGauges& gauges) {
                                                  metrics_.lending(gauges);
                                                }));
    }
    ASSIGN_OR_RETURN(http_,
                     open_server(arguments_, settings_, loop_, service_, clock_, tls_.get()));
    timeline_.mark("listen");
    // Before the line below: its reader may send a signal at once.
    loop_.on_first_signal({SIGTERM, SIGINT}, [this](int) { begin_drain(); });
    if (!arguments_.api_key_file.empty() || tls_ != nullptr) {
      loop_.on_each_signal(SIGHUP, [this] { reload_files(); });
    }
    fmt::print(stderr, "listening on {}; loading {}\n", server_url(arguments_, *http_),
               arguments_.model);
    tell_service_manager("STATUS=loading " + arguments_.model);
    if (tenants_) {
      tenants_->start([this] { return load_isolated(); });
    } else {
      threaded_->start([this] { return load(); });
    }
    return {};
  }

  // Until a drain is over, or the model cannot be loaded.
  Status run() {
    loop_.run();
    if (tenants_) tenants_->stop();
    if (threaded_) threaded_->stop();
    if (lend_) lend_->leave();  // its memory is free now
    if (load_error_) return *load_error_;
    return {};
  }

 private:
  static ServerMetrics::Options metrics_options(const ServeArguments& arguments,
                                                const ServeSettings& settings) {
    ServerMetrics::Options options;
    options.prefix = arguments.metrics_namespace + ":";
    options.model_name = settings.model_name;
    options.version = SLUICE_VERSION;
    options.max_requests = settings.queue.max_requests;
    return options;
  }

  ApiService::Options service_options() {
    ApiService::Options options;
    options.model_name = settings_.model_name;
    options.version = SLUICE_VERSION;
    options.workers = settings_.workers;
    options.origins = settings_.origins;
    options.unknown_fields =
        arguments_.strict_fields ? UnknownFields::kRefuse : UnknownFields::kIgnore;
    options.stream_keep_alive = settings_.stream_keep_alive;
    options.adapter_folder = arguments_.adapter_dir;
    options.urgent = &urgent_;
    options.open_connections = [this] { return http_->stats().open_connections; };
    if (turns_) {
      options.function_turns = [this] {
        FunctionTurns turns = function_turns(*turns_);
        if (ready_) turns.warm = isolated_.warm_functions();
        return turns;
      };
    }
    return options;
  }

  EngineLoop& make_engine_loop() {
    const auto wake = [this] { loop_.post([this] { engine_woke(); }); };
    if (!settings_.functions) {
      return threaded_.emplace(settings_.queue, clock_, wake,
                               [this] { return loaded_.when_idle(); });
    }
    TenantLoops::Options options;
    options.by_key = keys_.has_value();
    options.max_requests = settings_.queue.max_requests;
    options.max_loops = settings_.functions->max_functions;
    options.idle = settings_.functions->idle;
    options.first_kv_limit = settings_.functions->kv_least;
    return tenants_.emplace(options, clock_, wake);
  }

  // On the engine's thread.
  Result<std::unique_ptr<Engine>> load() {
    ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                     loaded_.load(arguments_.model, settings_.model_name, settings_.engine, clock_,
                                  timeline_, served_options()));
    if (settings_.engine.kv_disk) {
      ASSIGN_OR_RETURN(const auto store, open_resume_store(*settings_.engine.kv_disk));
      loop_.post([this, store] { service_.set_resume_store(store); });
    }
    publish(loaded_);
    return engine;
  }

  // On the thread that ends functions.
  Result<TenantLoops::MakeLoop> load_isolated() {
    ASSIGN_OR_RETURN(TenantLoops::MakeLoop make,
                     isolated_.load(arguments_.model, settings_.model_name, settings_.engine,
                                    *settings_.functions, settings_.queue.max_requests, *turns_,
                                    clock_, timeline_, served_options()));
    publish(isolated_);
    return make;
  }

  ServedEngineOptions served_options() const {
    return {arguments_.parsers, settings_.warm,
            arguments_.verify ? CanaryTime::kBeforeReady : CanaryTime::kWhenIdle,
            arguments_.chat_template};
  }

  // `loaded`: a ServedEngine or an IsolatedModel.
  template <class Loaded>
  void publish(const Loaded& loaded) {
    loop_.post([this, &loaded] {
      std::vector<StatusSpan> spans;
      for (const StartupSpan& span : timeline_.spans()) {
        spans.push_back({span.name, span.duration, span.begin, span.beside});
      }
      service_.set_model(loaded.model(), std::move(spans));
      metrics_.cache_config(loaded.cache_config());
      metrics_.startup(timeline_.spans(), timeline_.total());
      announce();
    });
  }

  std::unique_ptr<LimitedKv> limited_kv() {
    const std::int32_t max_num_seqs = settings_.engine.max_num_seqs;
    if (tenants_) {
      return std::make_unique<FunctionsKv>(
          *tenants_, kv_division(*settings_.lend, settings_.functions->max_functions),
          max_num_seqs);
    }
    return std::make_unique<EngineKv>(*threaded_, loaded_.kv_block_bytes(), max_num_seqs);
  }

  void engine_woke() {
    service_.engine_woke();
    announce();
    if (engine_.state() != EngineState::kFailed || failed_) return;
    failed_ = true;
    const auto failure = engine_.failure();
    const Error error = failure ? *failure : internal_error("the engine has failed");
    if (!ready_) {
      load_error_ = error;
      loop_.stop();
      return;
    }
    // The supervisor that watches /health decides what to do; clients get 503 meanwhile.
    log_error(fmt::format("{}; answering every call with 503", error.message));
  }

  void announce() {
    if (ready_ || service_.state() != "ready") return;
    ready_ = true;
    if (lend_) lend_->start(limited_kv());
    fmt::print(stderr, "{}\nready: {} serves '{}'\n", timeline_.line(),
               server_url(arguments_, *http_), settings_.model_name);
    tell_service_manager(fmt::format("READY=1\nSTATUS={} serves {}", server_url(arguments_, *http_),
                                     settings_.model_name));
  }

  // After an error the files from before stay, so that a slip locks no client out.
  void reload_files() {
    if (tls_ != nullptr) reload_certificate();
    if (!arguments_.api_key_file.empty()) reload_keys();
  }

  void reload_certificate() {
    if (const auto read = tls_->reload(); !read) {
      log_error(fmt::format("the certificate was not read again, that from before stays: {}",
                            read.error().message));
      return;
    }
    log_info(arguments_.ssl_certfile + ": read again, for later connections");
  }

  void reload_keys() {
    auto keys = ApiKeys::load(arguments_.api_key_file);
    if (keys && !arguments_.adapter_dir.empty() && !keys->any_admin()) {
      keys = invalid_argument("--adapter-dir needs a key of role=admin");
    }
    if (!keys) {
      log_error(fmt::format("the API keys were not read again, those from before stay: {}",
                            keys.error().message));
      return;
    }
    *keys_ = *std::move(keys);
    log_info(fmt::format("{}: {} API keys", arguments_.api_key_file, keys_->size()));
  }

  void begin_drain() {
    if (engine_.state() == EngineState::kLoading) exit_while_loading(access_log_, kExitSuccess);
    drain_.begin(*http_);
  }

  const ServeArguments& arguments_;
  const ServeSettings& settings_;
  const SystemClock clock_;
  StartupTimeline timeline_;                     // the engine's thread has it until set_model()
  const std::unique_ptr<http::TlsContext> tls_;  // null: none
  const std::unique_ptr<TurnService> turns_;     // null with --isolation none
  // Before every member that marks it or yields to it. Function processes read its count.
  UrgentWork urgent_{turns_ ? &turns_->urgent_count() : nullptr};
  http::EventLoop loop_{&urgent_};
  std::optional<ApiKeys> keys_;
  std::unique_ptr<AccessLog> access_log_;
  // --isolation none has these two.
  ServedEngine loaded_{&urgent_};
  std::optional<ThreadedEngineLoop> threaded_;
  // --isolation process has these two.
  IsolatedModel isolated_;
  std::optional<TenantLoops> tenants_;
  EngineLoop& engine_;  // one of the two
  ServerMetrics metrics_;
  ApiService service_;
  std::unique_ptr<LendSession> lend_;  // null without --lend
  std::unique_ptr<http::HttpServer> http_;
  ServerDrain drain_{loop_, service_, settings_.drain_timeout};
  std::optional<Error> load_error_;
  bool ready_ = false;
  bool failed_ = false;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Status serve(const ServeArguments& arguments, const ServeSettings& settings) {
  // A wrong path is found before clients can connect.
  ASSIGN_OR_RETURN([[maybe_unused]] const ModelConfig config, load_model_config(arguments.model));
  std::optional<ApiKeys> keys;
  if (!arguments.api_key_file.empty() && !arguments.api_key.empty()) {
    return invalid_argument(
        "--api-key-file and --api-key (or SLUICE_API_KEY) are given; give one of them");
  }
  if (!arguments.api_key.empty()) {
    ASSIGN_OR_RETURN(keys, ApiKeys::single(arguments.api_key));
  } else if (!arguments.api_key_file.empty()) {
    ASSIGN_OR_RETURN(keys, ApiKeys::load(arguments.api_key_file));
  } else if (arguments.uds.empty() && !is_loopback(arguments.host)) {
    log_warning(fmt::format("no API key is set: every client that reaches {} may use the model",
                            arguments.host));
  }
  if (!arguments.adapter_dir.empty() && !(keys && keys->any_admin())) {
    return invalid_argument(
        "--adapter-dir needs an --api-key-file with a key of role=admin, because loading adapters "
        "changes the answers of all clients");
  }
  ASSIGN_OR_RETURN(auto tls, load_certificate(arguments));
  ASSIGN_OR_RETURN(auto access_log, AccessLog::open(arguments.access_log));
  allow_connections(settings.limits.max_connections);
  const SystemClock clock;
  std::unique_ptr<TurnService> turns;
  if (settings.functions) {
    if (!settings.functions->turns) {
      log_warning(
          "--turns off is for measurements: processes compute at the same time, and no key has a "
          "fair share of the cores");
    }
    ASSIGN_OR_RETURN(turns,
                     TurnService::start(turn_options(settings.engine, *settings.functions), clock));
  }
  Server server(arguments, settings, std::move(keys), std::move(tls), std::move(access_log),
                std::move(turns));
  RETURN_IF_ERROR(server.start());
  return server.run();
}

// MODEL as a directory. Clients call a model from the cache by the name of its repository.
Result<ServeArguments> find_model_of(ServeArguments arguments) {
  ASSIGN_OR_RETURN(const ModelPlace place, find_model(arguments.model, arguments.revision));
  arguments.model = place.directory;
  if (!arguments.served_model_name) arguments.served_model_name = place.repository;
  return arguments;
}

}  // namespace

int run_serve(const ServeArguments& given) {
  signal(SIGPIPE, SIG_IGN);  // a log reader that went away must not end the server
  // Large bodies and answers get mappings of their own, so their memory returns to the system when
  // they are freed. By default glibc raises this threshold to 32 MiB as it sees them.
  mallopt(M_MMAP_THRESHOLD, kMmapThreshold);
  const auto arguments = find_model_of(given);
  if (!arguments) return report_error(arguments.error(), kExitError);
  const auto settings = parse_serve_settings(*arguments);
  if (!settings) return report_error(settings.error(), kExitUsage);
  if (auto status = serve(*arguments, *settings); !status) {
    return report_error(status.error(), kExitError);
  }
  return kExitSuccess;
}

}  // namespace sluice
