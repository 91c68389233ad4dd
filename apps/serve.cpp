#include "apps/serve.h"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "apps/exit_code.h"
#include "apps/load_served_engine.h"
#include "apps/model_place.h"
#include "apps/serve_settings.h"
#include "base/log.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "http/open_files.h"
#include "model/model_config.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/api_service.h"
#include "server/threaded_engine_loop.h"

namespace sluice {
namespace {

// How often a drain checks whether the last answer has been sent.
constexpr Duration kDrainPoll = std::chrono::milliseconds(10);
// The time that clients have to read why their answers ended.
constexpr Duration kFarewell = std::chrono::seconds(1);

constexpr int kMmapThreshold = 256 << 10;

class Server {
 public:
  Server(const ServeArguments& arguments, const ServeSettings& settings,
         std::optional<ApiKeys> keys, std::unique_ptr<AccessLog> access_log)
      : arguments_(arguments),
        settings_(settings),
        timeline_(clock_),
        keys_(std::move(keys)),
        access_log_(std::move(access_log)),
        engine_(
            settings.queue, clock_, [this] { loop_.post([this] { engine_woke(); }); },
            [this] { return loaded_.when_idle(); }),
        metrics_(metrics_options(arguments, settings)),
        service_(service_options(), keys_ ? &*keys_ : nullptr, loop_, engine_, clock_, *access_log_,
                 metrics_) {}

  Status start() {
    ASSIGN_OR_RETURN(http_, http::HttpServer::listen(loop_, arguments_.host, settings_.port,
                                                     settings_.limits, service_, clock_));
    timeline_.mark("listen");
    // Before the line below: its reader may send a signal at once.
    loop_.on_first_signal({SIGTERM, SIGINT}, [this](int) { begin_drain(); });
    fmt::print(stderr, "listening on {}; loading {}\n", url(), arguments_.model);
    engine_.start([this] { return load(); });
    return {};
  }

  // Until a drain is over, or the model cannot be loaded.
  Status run() {
    loop_.run();
    engine_.stop();
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
    options.urgent = &urgent_;
    options.open_connections = [this] { return http_->stats().open_connections; };
    return options;
  }

  std::string url() const {
    const bool is_v6 = arguments_.host.find(':') != std::string::npos;
    const std::string host = is_v6 ? fmt::format("[{}]", arguments_.host) : arguments_.host;
    return fmt::format("http://{}:{}", host, http_->port());
  }

  // On the engine's thread.
  Result<std::unique_ptr<Engine>> load() {
    ASSIGN_OR_RETURN(
        std::unique_ptr<Engine> engine,
        loaded_.load(arguments_.model, settings_.model_name, settings_.engine, clock_, timeline_,
                     {arguments_.parsers, settings_.warm,
                      arguments_.verify ? CanaryTime::kBeforeReady : CanaryTime::kWhenIdle}));
    loop_.post([this] {
      std::vector<StatusSpan> spans;
      for (const StartupSpan& span : timeline_.spans()) {
        spans.push_back({span.name, span.duration, span.begin, span.beside});
      }
      service_.set_model(loaded_.model(), std::move(spans));
      metrics_.cache_config(loaded_.cache_config());
      metrics_.startup(timeline_.spans(), timeline_.total());
      announce();
    });
    return engine;
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
    log_error(
        fmt::format("the engine has failed: {}; answering every call with 503", error.message));
  }

  void announce() {
    if (ready_ || service_.state() != "ready") return;
    ready_ = true;
    fmt::print(stderr, "{}\nready: {} serves '{}'\n", timeline_.line(), url(),
               settings_.model_name);
  }

  void begin_drain() {
    if (engine_.state() == EngineState::kLoading) {
      // Nothing runs yet, and a load cannot be interrupted.
      access_log_.reset();
      _exit(kExitSuccess);
    }
    fmt::print(stderr, "draining: {} requests run; up to {} s (signal again to exit at once)\n",
               service_.active(),
               std::chrono::duration_cast<std::chrono::seconds>(settings_.drain_timeout).count());
    service_.drain();
    http_->drain();
    loop_.after(settings_.drain_timeout, [this] { end_drain(); });
    watch_drain();
  }

  void watch_drain() {
    if (http_->stats().open_connections == 0) {
      loop_.stop();
    } else {
      loop_.after(kDrainPoll, [this] { watch_drain(); });
    }
  }

  void end_drain() {
    log_warning(
        fmt::format("drain: --drain-timeout is over; ending {} requests", service_.active()));
    service_.cancel_all();
    loop_.after(kFarewell, [this] {
      http_->close_all();
      loop_.stop();
    });
  }

  const ServeArguments& arguments_;
  const ServeSettings& settings_;
  const SystemClock clock_;
  StartupTimeline timeline_;  // the engine's thread has it until set_model()
  UrgentWork urgent_;         // before every member that marks it or yields to it
  http::EventLoop loop_{&urgent_};
  std::optional<ApiKeys> keys_;
  std::unique_ptr<AccessLog> access_log_;
  ServedEngine loaded_{&urgent_};
  ThreadedEngineLoop engine_;
  ServerMetrics metrics_;
  ApiService service_;
  std::unique_ptr<http::HttpServer> http_;
  std::optional<Error> load_error_;
  bool ready_ = false;
  bool failed_ = false;
};

// Each connection is an open file; many systems allow 1,024 unless more is asked for.
void allow_connections(std::int32_t connections) {
  constexpr std::int64_t kOthers = 512;  // the log, connections that are being turned away, ...
  const std::int64_t files = http::raise_open_files_limit();
  if (files >= connections + kOthers) return;
  log_warning(fmt::format(
      "this process may open {} files, too few for {} connections: further connections will wait "
      "unanswered; raise the limit (ulimit -n) or lower --max-connections",
      files, connections));
}

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
  } else if (!is_loopback(arguments.host)) {
    log_warning(fmt::format("no API key is set: every client that reaches {} may use the model",
                            arguments.host));
  }
  ASSIGN_OR_RETURN(auto access_log, AccessLog::open(arguments.access_log));
  allow_connections(settings.limits.max_connections);
  Server server(arguments, settings, std::move(keys), std::move(access_log));
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
