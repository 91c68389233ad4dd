#include "apps/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/random.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "apps/etcd_options.h"
#include "apps/exit_code.h"
#include "apps/number_range.h"
#include "apps/option_values.h"
#include "apps/service_manager.h"
#include "base/log.h"
#include "base/memory_size.h"
#include "coordinator/coordinator_service.h"
#include "coordinator/coordinator_state.h"
#include "etcd/ask_etcd.h"
#include "etcd/etcd_client.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "lending/lending_json.h"
#include "membership/bearer_token.h"
#include "membership/random_epoch.h"

namespace sluice {
namespace {

constexpr std::int32_t kMaxConnections = 8192;
constexpr Duration kTick = std::chrono::milliseconds(100);

Result<std::vector<LeaseBytes>> parse_budgets(const std::vector<std::string>& texts) {
  std::vector<LeaseBytes> budgets;
  std::set<std::string> devices;
  for (const std::string& text : texts) {
    const std::size_t sign = text.find('=');
    const std::string device = text.substr(0, sign);
    const bool named = !device.empty() && device.size() <= kMaxMemberName &&
                       device.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY"
                           "Z0123456789-_.:") == std::string::npos;
    if (sign == std::string::npos || !named || !devices.insert(device).second) {
      return invalid_argument(fmt::format(
          "--budget is '{}'; it must be DEVICE=SIZE, such as cpu=1GiB, each device once", text));
    }
    ASSIGN_OR_RETURN(const std::int64_t bytes,
                     parse_memory_size("--budget " + device, text.substr(sign + 1)));
    if (bytes > kMaxLeaseBytes) {
      return invalid_argument(fmt::format("--budget {} is too large: a device has at most {} TiB",
                                          text, kMaxLeaseBytes >> 40));
    }
    budgets.push_back({device, bytes});
  }
  return budgets;
}

// The lease of a coordinator that leads: another takes over in less than half of the expiry, so
// that parties keep their loans. etcd allows no less than two seconds.
std::int64_t lease_seconds(double expiry_s) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(expiry_s / 4), 2, 10);
}

Result<EtcdLeaderOptions> leader_options(const CoordinatorArguments& arguments) {
  const std::string& prefix = arguments.etcd.prefix;
  RETURN_IF_ERROR(check_etcd_prefix(prefix));
  std::uint64_t name = 0;
  if (getrandom(&name, sizeof(name), 0) != static_cast<ssize_t>(sizeof(name))) {
    return unavailable("the system gives no random numbers");
  }
  return EtcdLeaderOptions{.prefix = prefix,
                           .name = fmt::format("{:016x}", name),
                           .ttl_s = lease_seconds(arguments.expiry_s)};
}

Result<std::unique_ptr<CoordinatorState>> make_state(const CoordinatorArguments& arguments,
                                                     LendingOptions options, const Clock& clock,
                                                     EtcdCalls* calls) {
  if (calls == nullptr) return std::make_unique<CoordinatorState>(std::move(options), clock);
  ASSIGN_OR_RETURN(EtcdLeaderOptions leader, leader_options(arguments));
  return std::make_unique<CoordinatorState>(std::move(options), clock, *calls, std::move(leader));
}

// So that the next coordinator need not wait for the lease to end.
void hand_over(EtcdMembers& members, const EtcdCall& resign) {
  const auto answer = ask_etcd(members, resign);
  if (!answer) log_warning(fmt::format("--etcd: {}", answer.error().message));
}

// Epochs of two runs must differ. The lower 2^20 leave room for the joins of one run.
Status coordinate(const CoordinatorArguments& arguments) {
  LendingOptions options;
  options.expiry =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.expiry_s));
  ASSIGN_OR_RETURN(options.budgets, parse_budgets(arguments.budgets));
  ASSIGN_OR_RETURN(options.first_epoch, random_epoch());
  ASSIGN_OR_RETURN(const std::int64_t port, parse_integer("--port", arguments.port, 0, 65535));
  ASSIGN_OR_RETURN(BearerToken token, BearerToken::load(arguments.token_file));
  const SystemClock clock;
  http::EventLoop loop;
  ASSIGN_OR_RETURN(const auto members, etcd_members(arguments.etcd));
  std::unique_ptr<EtcdClient> etcd;
  if (members) {
    auto opened = EtcdClient::open(loop, *members);
    if (!opened) return tl::unexpected(with_context("--etcd", std::move(opened).error()));
    etcd = *std::move(opened);
  }
  ASSIGN_OR_RETURN(const auto state, make_state(arguments, std::move(options), clock, etcd.get()));
  CoordinatorService service(*state, std::move(token), clock, SLUICE_VERSION);
  http::HttpLimits limits;
  limits.max_connections = kMaxConnections;
  limits.body_bytes = kMaxLendingBody;
  ASSIGN_OR_RETURN(const auto server,
                   http::HttpServer::listen(loop, arguments.host, static_cast<std::uint16_t>(port),
                                            limits, service, clock));
  loop.on_first_signal({SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  const std::function<void()> tick = [&] {
    state->tick();
    loop.after(kTick, tick);
  };
  tick();
  fmt::print(stderr, "coordinator: listening on http://{}:{}; {}\n", arguments.host, server->port(),
             etcd ? fmt::format("its state is in etcd at {}", fmt::join(arguments.etcd.urls, ", "))
                  : fmt::format("nothing is granted for {} s", arguments.expiry_s));
  tell_service_manager("READY=1\nSTATUS=lending memory");
  loop.run();
  if (const auto resign = state->resign()) hand_over(*members, *resign);
  return {};
}

}  // namespace

CLI::App* add_coordinator(CLI::App& root, CoordinatorArguments& arguments) {
  CLI::App* command =
      root.add_subcommand("coordinator", "Divides memory between processes that lend and borrow");
  command->add_option("--host", arguments.host, "address to listen on (default 127.0.0.1)");
  command->add_option("--port", arguments.port, "0 = any free one (default 8100)");
  command
      ->add_option("--token-file", arguments.token_file,
                   "a file with the token that all parties must send")
      ->required();
  command
      ->add_option("--budget", arguments.budgets,
                   "DEVICE=SIZE: memory that parties of this device divide, beside what each has "
                   "for itself, such as cpu=1GiB; may be repeated")
      ->allow_extra_args(false);
  add_etcd_options(*command, arguments.etcd,
                   "keep the state in etcd 3.4 or later, such as http://127.0.0.1:2379; several "
                   "members with commas between them; of several coordinators one leads",
                   "Options");
  command
      ->add_option("--expiry", arguments.expiry_s,
                   "seconds without a message after which a party loses its loans, 1 to 3600 "
                   "(default 10)")
      ->check(number_between(1, 3600));
  return command;
}

int run_coordinator(const CoordinatorArguments& arguments) {
  signal(SIGPIPE, SIG_IGN);
  const Status status = coordinate(arguments);
  return status ? kExitSuccess : report_error(status.error(), exit_code_for(status.error()));
}

}  // namespace sluice
