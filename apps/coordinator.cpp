#include "apps/coordinator.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <set>

#include "apps/exit_code.h"
#include "apps/option_values.h"
#include "apps/service_manager.h"
#include "base/log.h"
#include "base/memory_size.h"
#include "coordinator/coordinator_service.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "lending/lending_json.h"

namespace sluice {
namespace {

constexpr std::int32_t kMaxConnections = 8192;
constexpr Duration kTick = std::chrono::milliseconds(500);

Result<std::vector<LeaseBytes>> parse_budgets(const std::vector<std::string>& texts) {
  std::vector<LeaseBytes> budgets;
  std::set<std::string> devices;
  for (const std::string& text : texts) {
    const std::size_t sign = text.find('=');
    const std::string device = text.substr(0, sign);
    const bool named = !device.empty() && device.size() <= kMaxLendingName &&
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
      return invalid_argument(fmt::format("--budget {} is above {} bytes", text, kMaxLeaseBytes));
    }
    budgets.push_back({device, bytes});
  }
  return budgets;
}

// Epochs of two runs must differ. The lower 2^20 leave room for the joins of one run.
Result<std::uint64_t> random_epoch() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    return unavailable("the system gives no random numbers");
  }
  return (((bits >> 32) & 0xffff'ffffU) << 20) + 1;
}

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
  CoordinatorService service(std::move(options), std::move(token), clock, SLUICE_VERSION);
  http::HttpLimits limits;
  limits.max_connections = kMaxConnections;
  limits.body_bytes = kMaxLendingBody;
  ASSIGN_OR_RETURN(const auto server,
                   http::HttpServer::listen(loop, arguments.host, static_cast<std::uint16_t>(port),
                                            limits, service, clock));
  loop.on_first_signal({SIGTERM, SIGINT}, [&](int) { loop.stop(); });
  const std::function<void()> tick = [&] {
    service.advance();
    loop.after(kTick, tick);
  };
  loop.after(kTick, tick);
  fmt::print(stderr, "coordinator: listening on http://{}:{}; nothing is granted for {} s\n",
             arguments.host, server->port(), arguments.expiry_s);
  if (const auto told = tell_service_manager("READY=1\nSTATUS=lending memory"); !told) {
    log_warning(told.error().message);
  }
  loop.run();
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
  command
      ->add_option("--expiry", arguments.expiry_s,
                   "seconds without a message after which a party loses its loans, 1 to 3600 "
                   "(default 10)")
      ->check(CLI::Range(1.0, 3600.0));
  return command;
}

int run_coordinator(const CoordinatorArguments& arguments) {
  signal(SIGPIPE, SIG_IGN);
  const Status status = coordinate(arguments);
  return status ? kExitSuccess : report_error(status.error(), exit_code_for(status.error()));
}

}  // namespace sluice
