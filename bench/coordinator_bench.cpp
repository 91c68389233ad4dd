// Measures how long `sluice coordinator` takes to answer many parties over HTTP on this machine:
//   coordinator_bench                                     1,000 parties of one device
//   coordinator_bench --devices 125                       eight on each of 125
//   coordinator_bench --etcd http://127.0.0.1:2379        with its state in etcd
// The times are a party's, from the sending of a message to its answer. They include the waiting
// for a core beside the parties themselves, which all run in this process.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>  // tidy: allow(heavy-header) a program of its own
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/party_load.h"
#include "bench/server_process.h"
#include "lending/lending_json.h"

namespace sluice::bench {
namespace {

struct Options {
  std::string sluice = "build/release/apps/sluice";
  std::string etcd;
  int parties = 1000;
  int devices = 1;
  double seconds = 20;
  double expiry = 10;
  double calm = 10;
};

constexpr std::int64_t kBudgetOfOne = std::int64_t{64} << 20;

double own_cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

void print_row(std::string_view name, std::vector<double> times, double seconds) {
  if (times.empty()) return;
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  fmt::print("{:<10} {:>9} {:>9.0f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, times.size(),
             static_cast<double>(times.size()) / seconds, at(0.5), at(0.9), at(0.99), times.back());
}

// The parties of a device, which are dealt out one by one.
int parties_of(const Options& options, int device) {
  return options.parties / options.devices + (device < options.parties % options.devices ? 1 : 0);
}

Status measure(const Options& options, const std::vector<std::string>& devices,
               const ServerProcess& coordinator, PartyLoad& load) {
  // Nothing is granted for one expiry; then the bursts that have waited for it.
  RETURN_IF_ERROR(load.run_for(from_seconds(options.expiry + 2)));
  const std::int64_t errors = load.errors();
  load.reset();
  ASSIGN_OR_RETURN(const double before, coordinator.cpu_seconds());
  const double own = own_cpu_seconds();
  RETURN_IF_ERROR(load.run_for(from_seconds(options.seconds)));
  ASSIGN_OR_RETURN(const double after, coordinator.cpu_seconds());
  fmt::print("{} parties on {} devices, {:.0f} s{}\n", options.parties, options.devices,
             options.seconds, options.etcd.empty() ? "" : ", state in etcd");
  fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "message", "answers", "each s",
             "P50 ms", "P90 ms", "P99 ms", "most ms");
  std::vector<double> all;
  for (const auto& [verb, times] : load.times()) {
    print_row(lend_verb_name(verb), times, options.seconds);
    all.insert(all.end(), times.begin(), times.end());
  }
  print_row("all", all, options.seconds);
  fmt::print("CPU of the coordinator: {:.2f} of a core; of the parties: {:.2f}\n",
             (after - before) / options.seconds, (own_cpu_seconds() - own) / options.seconds);
  fmt::print("joined: {}; errors: {}\n", load.joined(), load.errors() - errors);
  for (int i = 0; i < options.devices; ++i) {
    const std::string& device = devices[static_cast<std::size_t>(i)];
    if (load.borrowed(device) <= parties_of(options, i) * kBudgetOfOne) continue;
    return internal_error(fmt::format("device {}: more is borrowed than there is", device));
  }
  if (load.joined() != options.parties) return unavailable("not all parties have joined");
  return {};
}

Status run_in(const std::string& folder, const Options& options) {
  const std::string token = "0123456789abcdef0123456789abcdef";
  const std::string token_file = folder + "/token";
  std::ofstream(token_file) << token << "\n";
  std::filesystem::permissions(token_file, std::filesystem::perms::owner_read);
  std::vector<std::string> arguments = {"coordinator",
                                        "--port",
                                        "0",
                                        "--token-file",
                                        token_file,
                                        "--expiry",
                                        fmt::format("{}", options.expiry)};
  std::vector<std::string> devices;
  for (int i = 0; i < options.devices; ++i) {
    devices.push_back(fmt::format("device-{}", i));
    const std::int64_t budget = parties_of(options, i) * kBudgetOfOne;
    arguments.insert(arguments.end(), {"--budget", fmt::format("{}={}", devices.back(), budget)});
  }
  if (!options.etcd.empty()) {
    arguments.insert(arguments.end(), {"--etcd", options.etcd, "--etcd-prefix",
                                       fmt::format("/sluice/bench-{}", getpid())});
  }
  ASSIGN_OR_RETURN(ServerProcess coordinator,
                   ServerProcess::start_command(options.sluice, arguments, "; "));
  ASSIGN_OR_RETURN(PartyLoad load, PartyLoad::connect({.port = coordinator.port(),
                                                       .token = token,
                                                       .parties = options.parties,
                                                       .devices = devices,
                                                       .calm_s = options.calm}));
  return measure(options, devices, coordinator, load);
}

Status run(const Options& options) {
  std::string folder = (std::filesystem::temp_directory_path() / "sluice-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return unavailable("no folder for the token");
  const Status status = run_in(folder, options);
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Measures `sluice coordinator` with many parties.");
  app.add_option("--sluice", options.sluice, "the binary to measure")->capture_default_str();
  app.add_option("--parties", options.parties)->check(CLI::Range(1, 4000))->capture_default_str();
  app.add_option("--devices", options.devices, "that the parties are divided over")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "to measure")
      ->check(CLI::Range(1.0, 300.0))
      ->capture_default_str();
  app.add_option("--expiry", options.expiry, "of the coordinator")
      ->check(CLI::Range(1.0, 60.0))
      ->capture_default_str();
  app.add_option("--calm", options.calm, "mean seconds between two bursts of a party")
      ->check(CLI::Range(0.1, 1000.0))
      ->capture_default_str();
  app.add_option("--etcd", options.etcd, "URL of an etcd for the state");
  CLI11_PARSE(app, argc, argv);
  const auto status = sluice::bench::run(options);
  if (status) return 0;
  fmt::print(stderr, "coordinator_bench: {}\n", status.error().message);
  return 1;
}
