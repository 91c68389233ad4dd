#include "apps/agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "agents/agent_link.h"
#include "apps/agent_machine.h"
#include "apps/exit_code.h"
#include "apps/gateway_agents.h"
#include "apps/host_name.h"
#include "apps/lend_session.h"
#include "apps/limited_kv.h"
#include "apps/serve_settings.h"
#include "apps/service_manager.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "base/urgent_work.h"
#include "function/turn_service.h"
#include "http/base_url.h"
#include "http/fetch.h"
#include "membership/bearer_token.h"
#include "membership/member_table.h"

namespace sluice {
namespace {

constexpr Duration kAnswerTime = std::chrono::seconds(10);
constexpr Duration kPause = std::chrono::milliseconds(500);

Result<std::string> random_prefix() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    return unavailable("the system gives no random numbers");
  }
  return fmt::format("{:016x}", bits);
}

Result<std::map<std::string, std::string>> parse_backbones(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> directories;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
      return invalid_argument(fmt::format("--backbone must be NAME=DIRECTORY, got '{}'", text));
    }
    directories[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return directories;
}

Result<http::HttpClientOptions> client_options(const AgentArguments& arguments) {
  http::HttpClientOptions options;
  auto url = http::parse_base_url(arguments.join);
  if (!url) return with_context("--join", std::move(url).error());
  options.url = *std::move(url);
  options.connect_timeout = kAnswerTime;
  const bool files = !arguments.ssl_certfile.empty() && !arguments.ssl_keyfile.empty() &&
                     !arguments.ssl_cafile.empty();
  if (options.url.tls && !files) {
    return invalid_argument(
        "--join https://... needs --ssl-certfile, --ssl-keyfile and --ssl-cafile");
  }
  if (!options.url.tls && !is_loopback(options.url.host)) {
    return invalid_argument(
        "--join: http:// is for a gateway on this machine; use https:// for another one");
  }
  if (options.url.tls) {
    options.party =
        http::TlsPartyFiles{arguments.ssl_certfile, arguments.ssl_keyfile, arguments.ssl_cafile};
  }
  ASSIGN_OR_RETURN(const BearerToken token, BearerToken::load(arguments.token_file));
  options.headers = {{"Authorization", token.header()}};
  return options;
}

// Waits until the gateway has loaded its own.
Result<std::vector<GatewayBackbone>> ask_backbones(const http::HttpClientOptions& options) {
  std::string told;
  for (;;) {
    const auto answer = http::fetch(options, {.path = "/v1/agents/backbones", .body = {}});
    std::string cause;
    if (!answer) {
      cause = answer.error().message;
    } else if (answer->status == 200) {
      return parse_gateway_backbones(answer->body);
    } else {
      const auto fault = parse_agent_answer(answer->body);
      cause = fault ? fault->message : "it is no gateway: " + fault.error().message;
      if (!fault || fault->fault != AgentFault::kNotReady) return unavailable("--join: " + cause);
    }
    if (std::exchange(told, cause) != cause) {
      log_info(fmt::format("waiting for the gateway: {}", cause));
    }
    std::this_thread::sleep_for(kPause);
  }
}

class AgentProcess {
 public:
  AgentProcess(const AgentArguments& arguments, const ServeSettings& settings,
               std::unique_ptr<TurnService> turns)
      : arguments_(arguments),
        settings_(settings),
        turns_(std::move(turns)),
        machine_(settings, loop_, *turns_, clock_),
        functions_(machine_, clock_, settings.functions->max_functions) {}

  Status run(const http::HttpClientOptions& client,
             const std::map<std::string, std::string>& directories) {
    ASSIGN_OR_RETURN(const std::vector<GatewayBackbone> backbones, ask_backbones(client));
    RETURN_IF_ERROR(load(backbones, directories));
    for (const AgentBackbone& one : machine_.backbones()) {
      functions_.add_backbone(one.name, machine_.is_loaded(one.name));
    }
    if (settings_.lend) {
      ASSIGN_OR_RETURN(lend_,
                       LendSession::open(*settings_.lend, loop_, clock_, [](const auto&) {}));
      lend_->start(limited_kv());
    }
    AgentLink::Options options;
    options.client = client;
    options.client.silence_timeout = kAnswerTime;
    options.join.agent = arguments_.name.empty() ? host_name("agent") : arguments_.name;
    options.join.cores = available_cpus();
    options.join.turn_cores = turn_options(settings_.engine, *settings_.functions).threads;
    options.join.memory_bytes =
        static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    options.join.max_functions = settings_.functions->max_functions;
    options.join.backbones = machine_.backbones();
    ASSIGN_OR_RETURN(options.key_prefix, random_prefix());
    const std::string name = options.join.agent;
    ASSIGN_OR_RETURN(link_, AgentLink::open(std::move(options), loop_, clock_, machine_, functions_,
                                            {.joined = [this, name] { joined(name); },
                                             .failed =
                                                 [this](const Error& error) {
                                                   error_ = error;
                                                   loop_.stop();
                                                 },
                                             .left = [this] { loop_.stop(); }}));
    loop_.on_first_signal({SIGTERM, SIGINT}, [this](int) {
      fmt::print(stderr, "draining: running calls end, then the agent leaves\n");
      link_->drain(settings_.drain_timeout);
    });
    link_->start();
    loop_.run();
    // Processes that still run end with this one, and the coordinator learns of it by the silence.
    if (lend_ && functions_.empty()) lend_->leave();
    if (error_) return *error_;
    return {};
  }

 private:
  std::unique_ptr<LimitedKv> limited_kv() {
    return std::make_unique<FunctionsKv>(
        functions_, kv_division(*settings_.lend, settings_.functions->max_functions),
        settings_.engine.max_num_seqs);
  }

  Status load(const std::vector<GatewayBackbone>& backbones,
              const std::map<std::string, std::string>& directories) {
    for (const GatewayBackbone& backbone : backbones) {
      const auto given = directories.find(backbone.name);
      const std::string& directory =
          given == directories.end() ? backbone.directory : given->second;
      if (given == directories.end() && !std::filesystem::exists(directory)) {
        log_info(
            fmt::format("backbone '{}' is not on this machine ({}); --backbone NAME=DIRECTORY "
                        "says where it is",
                        backbone.name, directory));
        continue;
      }
      if (Status loaded = machine_.load(backbone, directory); !loaded) {
        return with_context(
            fmt::format("backbone '{}' cannot be loaded from {} (--backbone NAME=DIRECTORY gives "
                        "another place)",
                        backbone.name, directory),
            std::move(loaded).error());
      }
    }
    if (!machine_.backbones().empty()) return {};
    return not_found("none of the gateway's backbones is on this machine");
  }

  void joined(const std::string& name) const {
    std::string names;
    for (const AgentBackbone& one : machine_.backbones()) {
      names += (names.empty() ? "" : ", ") + one.name;
    }
    fmt::print(stderr, "joined: {} as '{}', with {}\n", arguments_.join, name, names);
    tell_service_manager("READY=1\nSTATUS=runs functions for " + arguments_.join);
  }

  const AgentArguments& arguments_;
  const ServeSettings& settings_;
  const SystemClock clock_;
  const std::unique_ptr<TurnService> turns_;
  UrgentWork urgent_{&turns_->urgent_count()};
  http::EventLoop loop_{&urgent_};
  AgentMachine machine_;
  AgentFunctions functions_;
  std::unique_ptr<LendSession> lend_;  // null without --kv-cache-memory MIN-MAX
  std::unique_ptr<AgentLink> link_;
  std::optional<Error> error_;
};

Status serve_gateway(const AgentArguments& arguments, const ServeSettings& settings) {
  if (!arguments.name.empty() && !is_member_name(arguments.name)) {
    return invalid_argument(fmt::format("--name must be {}", kMemberNameRule));
  }
  ASSIGN_OR_RETURN(const auto client, client_options(arguments));
  ASSIGN_OR_RETURN(const auto directories, parse_backbones(arguments.backbones));
  const SystemClock clock;
  ASSIGN_OR_RETURN(auto turns,
                   TurnService::start(turn_options(settings.engine, *settings.functions), clock));
  AgentProcess agent(arguments, settings, std::move(turns));
  return agent.run(client, directories);
}

}  // namespace

int run_agent(const AgentArguments& given) {
  signal(SIGPIPE, SIG_IGN);
  AgentArguments arguments = given;
  arguments.serve.model = "agent";
  arguments.serve.isolation = "process";
  arguments.serve.warm_workers = "0";
  auto settings = parse_serve_settings(arguments.serve);
  if (!settings) return report_error(settings.error(), kExitUsage);
  if (!settings->engine.adapters.sources.empty()) {
    return report_error(
        invalid_argument("--adapter is for serve; an agent gets adapters from its gateway"),
        kExitUsage);
  }
  settings->engine.adapters.at_run_time = true;
  const Status status = serve_gateway(arguments, *settings);
  return status ? kExitSuccess : report_error(status.error(), exit_code_for(status.error()));
}

}  // namespace sluice
