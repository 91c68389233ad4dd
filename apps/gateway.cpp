#include "apps/gateway.h"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "apps/exit_code.h"
#include "apps/gateway_admin.h"
#include "apps/gateway_host.h"
#include "apps/gateway_usage.h"
#include "apps/lend_session.h"
#include "apps/limited_kv.h"
#include "apps/serve_settings.h"
#include "apps/server_drain.h"
#include "apps/server_socket.h"
#include "apps/service_manager.h"
#include "base/log.h"
#include "base/sha256.h"
#include "function/turn_service.h"
#include "gateway/function_loops.h"
#include "gateway/function_models.h"
#include "gateway/gateway_metrics.h"
#include "gateway/tenant_keys.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "http/tls.h"
#include "membership/random_epoch.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/api_service.h"
#include "serverless/functions_file.h"

namespace sluice {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);
constexpr const char* kName = "gateway";  // of the server, in metrics and status

FunctionLoops::Options loop_options(const ServeSettings& settings) {
  FunctionLoops::Options options;
  options.max_requests = settings.queue.max_requests;
  options.max_instances = settings.functions->max_functions;
  options.seats = settings.engine.max_num_seqs;
  // One more than compute, so that the cores never wait for the event loop.
  options.prefills_at_once = turn_options(settings.engine, *settings.functions).places + 1;
  return options;
}

class Gateway {
 public:
  Gateway(const GatewayArguments& arguments, const ServeSettings& settings, FunctionsFile file,
          std::unique_ptr<http::TlsContext> tls, std::unique_ptr<AccessLog> access_log,
          std::unique_ptr<TurnService> turns, GatewayUsage usage, std::uint64_t first_epoch,
          std::optional<JoinedGroup> group)
      : arguments_(arguments),
        settings_(settings),
        file_(std::move(file)),
        tls_(std::move(tls)),
        turns_(std::move(turns)),
        keys_(tenant_keys(file_)),
        access_log_(std::move(access_log)),
        capacity_(usage.capacity),
        first_epoch_(first_epoch),
        joined_(std::move(group)),
        host_(settings, models_, loop_, *turns_, clock_, [this] { wake(); }),
        book_(usage.capacity, turn_options(settings.engine, *settings.functions).threads, clock_,
              usage.rows, usage.first_day),
        usage_(std::move(usage.store), book_, std::move(usage.prices),
               [this](std::function<void()> task) { loop_.post(std::move(task)); }),
        group_usage_(std::move(usage.group)),
        functions_(loop_options(settings), host_, book_, clock_, [this] { wake(); }),
        metrics_(metrics_options()),
        service_(service_options(), &keys_, loop_, functions_, clock_, *access_log_, metrics_) {}

  Status start() {
    if (settings_.lend) {
      ASSIGN_OR_RETURN(lend_, LendSession::open(*settings_.lend, loop_, clock_,
                                                [this](const LendingGauges& gauges) {
                                                  metrics_.lending(gauges);
                                                }));
    }
    ASSIGN_OR_RETURN(http_,
                     open_server(arguments_.serve, settings_, loop_, service_, clock_, tls_.get()));
    ASSIGN_OR_RETURN(agents_, GatewayAgents::open(arguments_.agents, hub_options(), loop_, clock_,
                                                  [this] { agents_changed(); }));
    if (agents_) host_.set_agents(agents_->hub());
    ASSIGN_OR_RETURN(member_, GatewayMember::open(std::move(joined_), group_usage_, loop_, clock_,
                                                  group_parts()));
    group_usage_ = {};
    if (member_) {
      usage_.set_group(member_->usage_group());
      member_->start();
    }
    // Before the line below: its reader may send a signal at once.
    loop_.on_first_signal({SIGTERM, SIGINT}, [this](int) { begin_drain(); });
    loop_.on_each_signal(SIGHUP, [this] { static_cast<void>(reload()); });  // it logs
    fmt::print(stderr, "listening on {}; loading {}\n", url(), arguments_.functions);
    if (agents_) fmt::print(stderr, "agents join at {}\n", agents_->url());
    tell_service_manager("STATUS=loading " + arguments_.functions);
    host_.on_loaded([this](std::int32_t backbone, const Status& status) {
      functions_.backbone_loaded(backbone, status);
    });
    functions_.on_delay(
        [this](Duration delay) { loop_.after(delay, [this] { functions_.dispatch(); }); });
    host_.load_all(file_.backbones, arguments_.functions,
                   [this](const Status& status) { loaded(status); });
    return {};
  }

  // Until a drain is over, or a backbone cannot be loaded.
  Status run() {
    loop_.run();
    functions_.stop();
    if (agents_) agents_->stop();
    host_.stop();
    if (lend_) lend_->leave();  // its memory is free now
    usage_.stop(today());
    if (member_) member_->stop();
    if (load_error_) return *load_error_;
    return {};
  }

 private:
  AgentHub::Options hub_options() const {
    AgentHub::Options options;
    options.expiry = from_seconds(arguments_.agents.expiry_s);
    options.first_epoch = first_epoch_;
    options.turn_cores = turn_options(settings_.engine, *settings_.functions).threads;
    options.max_requests = settings_.queue.max_requests;
    return options;
  }

  GatewayMember::Parts group_parts() {
    return {service_.quotas(),
            keys_,
            file_,
            book_,
            usage_.prices(),
            [this](const std::string& text) { use_published(text); },
            [this] { end_fenced(); }};
  }

  // Not from inside of the hub, which may be in the middle of a change.
  void agents_changed() {
    if (agents_told_) return;
    agents_told_ = true;
    loop_.post([this] {
      agents_told_ = false;
      functions_.machines_changed();
      wake();
    });
  }

  ServerMetrics::Options metrics_options() const {
    ServerMetrics::Options options;
    options.prefix = arguments_.serve.metrics_namespace + ":";
    options.model_name = kName;
    options.version = SLUICE_VERSION;
    options.max_requests = settings_.queue.max_requests;
    return options;
  }

  ApiService::Options service_options() {
    ApiService::Options options;
    options.model_name = kName;
    options.version = SLUICE_VERSION;
    options.workers = settings_.workers;
    options.origins = settings_.origins;
    options.unknown_fields =
        arguments_.serve.strict_fields ? UnknownFields::kRefuse : UnknownFields::kIgnore;
    options.stream_keep_alive = settings_.stream_keep_alive;
    options.urgent = &urgent_;
    options.open_connections = [this] { return http_->stats().open_connections; };
    options.function_turns = [this] { return function_turns(*turns_); };
    options.own_metrics = [this](std::string& out) {
      const std::string prefix = arguments_.serve.metrics_namespace + ":";
      write_gateway_metrics(functions_.counts(), prefix, out);
      if (member_) member_->write_metrics(prefix, out);
    };
    options.own_routes = own_routes();
    options.refuse_key = [this](std::string_view tenant) {
      const MoneyElsewhere elsewhere =
          member_ ? member_->money(std::string(tenant)) : MoneyElsewhere();
      return refuse_money(file_, book_, usage_.prices(), tenant, elsewhere);
    };
    return options;
  }

  std::vector<OwnRoute> own_routes() {
    const GatewayParts parts{file_,
                             numbers_,
                             models_,
                             functions_,
                             book_,
                             usage_.prices(),
                             host_,
                             settings_.functions->max_functions,
                             [this] { return agents_ ? &agents_->hub() : nullptr; },
                             [this] { return service_.state(); },
                             [this] { return clock_.now() - started_; },
                             [this] { return reload(); }};
    std::vector<OwnRoute> routes = admin_routes(parts);
    OwnRoute usage = usage_route();
    usage.handle = [this](const http::Request& request, const ApiKey& key,
                          const OwnRoute::Answer& answer) {
      functions_.report_usage();
      std::optional<UsageGateways> gateways;
      if (member_) gateways = member_->gateways();
      answer_usage(usage_, request.query, key, gateways, answer);
    };
    routes.push_back(std::move(usage));
    return routes;
  }

  std::string url() const { return server_url(arguments_.serve, *http_); }

  // Any thread. One task serves all wake-ups that come before it runs.
  void wake() {
    if (woken_.exchange(true)) return;
    loop_.post([this] {
      woken_.store(false);
      service_.engine_woke();
    });
  }

  void loaded(const Status& status) {
    if (!status) {
      load_error_ = status.error();
      return loop_.stop();
    }
    for (std::int32_t i = 0; i < std::ssize(file_.backbones); ++i) {
      models_.add_backbone(host_.model(i).model());
      book_.add_backbone();
      functions_.add_backbone({host_.model(i).weight_bytes(), host_.load_time(i)},
                              host_.is_loaded(i));
    }
    use(file_);
    if (agents_) open_to_agents();
    service_.set_models(models_, {});
    functions_.set_ready();
    metrics_.cache_config(host_.model(0).cache_config());
    tick();
    if (lend_) lend_->start(limited_kv());
    if (late_functions_) use_published(*std::exchange(late_functions_, std::nullopt));
    fmt::print(stderr, "ready: {} serves {} functions of {} tenants\n", url(),
               file_.functions.size(), file_.tenants.size());
    tell_service_manager(fmt::format("READY=1\nSTATUS={} serves {}", url(), arguments_.functions));
  }

  std::unique_ptr<LimitedKv> limited_kv() {
    return std::make_unique<FunctionsKv>(
        functions_, kv_division(*settings_.lend, settings_.functions->max_functions),
        settings_.engine.max_num_seqs);
  }

  void open_to_agents() {
    std::vector<HubBackbone> backbones;
    for (std::int32_t i = 0; i < std::ssize(file_.backbones); ++i) {
      const BackboneSpec& spec = file_.backbones[static_cast<std::size_t>(i)];
      const IsolatedModel& model = host_.model(i);
      HubBackbone& one = backbones.emplace_back();
      one.backbone = {spec.name, std::filesystem::absolute(spec.directory).string(),
                      to_hex(model.digest()), model.cache_config().block_size};
      one.model = model.checks();
    }
    agents_->hub().set_backbones(std::move(backbones));
    agents_->start();
  }

  // Later requests follow the file.
  void use(const FunctionsFile& file) {
    functions_.set_idle_bytes(file.host_memory);
    functions_.set_batching(file.batching, file.fixed_batch);
    functions_.set_preload(file.preload);
    numbers_ = models_.set_file(file);
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const FunctionSpec& spec = file.functions[i];
      const GatewayFunction function{file.tenants[static_cast<std::size_t>(spec.tenant)].name,
                                     spec.name, spec.backbone, spec.idle, spec.ttft_slo};
      if (numbers_[i] < num_functions_) {
        functions_.change_function(numbers_[i], function);
      } else {
        num_functions_ = functions_.add_function(function) + 1;
        book_.add_function(function.tenant, models_.full_name(i), function.backbone);
      }
    }
  }

  void tick() {
    functions_.tick();
    if (agents_) book_.set_capacity(agents_->with_agents(capacity_));
    usage_.keep(today());
    loop_.after(kTick, [this] { tick(); });
  }

  // After an error the file from before stays, so that a slip locks no client out.
  Status reload() {
    if (tls_ != nullptr) {
      if (const auto read = tls_->reload(); !read) log_error(read.error().message);
    }
    if (agents_) agents_->reload();
    if (service_.state() != "ready") return unavailable("the gateway loads or stops");
    if (member_) {
      // The file beside this gateway may be older than the group's.
      log_info("the functions file is the one in etcd: `sluice functions publish` changes it");
      member_->read_functions_again();
      return {};
    }
    return follow(load_functions(arguments_.functions));
  }

  // Follows a file that the group of gateways has published.
  void use_published(const std::string& text) {
    if (functions_.state() == EngineState::kLoading) {
      late_functions_ = text;
      return;
    }
    static_cast<void>(follow(load_functions_text(text, arguments_.functions)));  // it logs
  }

  Status follow(Result<FunctionsFile> read) {
    if (const Status status = replace_file(std::move(read)); !status) {
      log_error(fmt::format("the functions were not read again, those from before stay: {}",
                            status.error().message));
      return status;
    }
    log_info(fmt::format("{}: {} functions of {} tenants", arguments_.functions,
                         file_.functions.size(), file_.tenants.size()));
    return {};
  }

  Status replace_file(Result<FunctionsFile> read) {
    ASSIGN_OR_RETURN(FunctionsFile file, std::move(read));
    RETURN_IF_ERROR(check_same_backbones(file_, file));
    file_ = std::move(file);
    keys_ = tenant_keys(file_);
    use(file_);
    return {};
  }

  void end_fenced() {
    load_error_ = unavailable(
        "another process has taken this gateway's name in etcd; give each gateway its own "
        "(--name)");
    log_error(load_error_->message + "; draining");
    if (functions_.state() == EngineState::kLoading) exit_while_loading(access_log_, kExitError);
    begin_drain();
  }

  void begin_drain() {
    if (functions_.state() == EngineState::kLoading) exit_while_loading(access_log_, kExitSuccess);
    drain_.begin(*http_);
  }

  const GatewayArguments& arguments_;
  const ServeSettings& settings_;
  FunctionsFile file_;
  std::vector<std::int32_t> numbers_;  // of the file's functions; empty: they still load
  const SystemClock clock_;
  const TimePoint started_ = clock_.now();
  const std::unique_ptr<http::TlsContext> tls_;  // null: none
  const std::unique_ptr<TurnService> turns_;
  // Before every member that marks it or yields to it. Function processes read its count.
  UrgentWork urgent_{&turns_->urgent_count()};
  http::EventLoop loop_{&urgent_};
  std::atomic<bool> woken_{false};
  ApiKeys keys_;
  std::unique_ptr<AccessLog> access_log_;
  const MachineCapacity capacity_;  // of this machine
  const std::uint64_t first_epoch_;
  FunctionModels models_;
  std::optional<JoinedGroup> joined_;          // until member_ has it
  std::unique_ptr<GatewayMember> member_;      // null: none
  std::optional<std::string> late_functions_;  // published while the gateway loads
  std::unique_ptr<GatewayAgents> agents_;      // null: none; before the functions that run on them
  bool agents_told_ = false;
  GatewayHost host_;
  UsageBook book_;
  UsageKeeper usage_;
  GroupUsageStart group_usage_;  // until member_ has it
  FunctionLoops functions_;
  std::int32_t num_functions_ = 0;
  ServerMetrics metrics_;
  ApiService service_;
  std::unique_ptr<LendSession> lend_;  // null: KV memory is fixed
  std::unique_ptr<http::HttpServer> http_;
  ServerDrain drain_{loop_, service_, settings_.drain_timeout};
  std::optional<Error> load_error_;
};

Status serve_functions(const GatewayArguments& arguments, const ServeSettings& settings) {
  const SystemClock clock;
  ASSIGN_OR_RETURN(auto group, enter_group(arguments.group, arguments.functions, clock));
  ASSIGN_OR_RETURN(FunctionsFile file,
                   group ? load_functions_text(group->start.functions, arguments.functions)
                         : load_functions(arguments.functions));
  ASSIGN_OR_RETURN(auto tls, load_certificate(arguments.serve));
  ASSIGN_OR_RETURN(auto access_log, AccessLog::open(arguments.serve.access_log));
  allow_connections(settings.limits.max_connections);
  ASSIGN_OR_RETURN(auto turns,
                   TurnService::start(turn_options(settings.engine, *settings.functions), clock));
  ASSIGN_OR_RETURN(GatewayUsage usage, open_usage(arguments));
  ASSIGN_OR_RETURN(const std::uint64_t first_epoch, random_epoch());
  Gateway gateway(arguments, settings, std::move(file), std::move(tls), std::move(access_log),
                  std::move(turns), std::move(usage), first_epoch, std::move(group));
  RETURN_IF_ERROR(gateway.start());
  return gateway.run();
}

}  // namespace

int run_gateway(const GatewayArguments& given) {
  signal(SIGPIPE, SIG_IGN);  // a log reader that went away must not end the server
  GatewayArguments arguments = given;
  arguments.serve.model = kName;
  arguments.serve.isolation = "process";
  // Without the option, no process is left after the idle time.
  if (!arguments.serve.warm_workers) arguments.serve.warm_workers = "0";
  auto settings = parse_serve_settings(arguments.serve);
  if (!settings) return report_error(settings.error(), kExitUsage);
  if (!settings->engine.adapters.sources.empty()) {
    return report_error(
        invalid_argument("--adapter is for serve; adapters of functions are in the functions file"),
        kExitUsage);
  }
  settings->engine.adapters.at_run_time = true;
  if (auto status = serve_functions(arguments, *settings); !status) {
    return report_error(status.error(), kExitError);
  }
  return kExitSuccess;
}

}  // namespace sluice
