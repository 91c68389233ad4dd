#include "apps/simulate_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "function_sim/calls_file.h"
#include "function_sim/function_simulation.h"
#include "serverless/functions_file.h"
#include "workload/trace_file.h"

namespace sluice {
namespace {

using ReportJson = nlohmann::ordered_json;

Result<std::vector<SystemSpec>> parse_systems(std::string_view names) {
  std::vector<SystemSpec> systems;
  if (names == "all") {
    for (const std::string& name : system_names()) systems.push_back(*system_named(name));
    return systems;
  }
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(','), names.size());
    ASSIGN_OR_RETURN(SystemSpec system, system_named(names.substr(0, end)));
    systems.push_back(std::move(system));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  if (systems.empty()) return invalid_argument("--systems: there is no name");
  return systems;
}

// "TENANT/NAME", by number.
std::vector<std::string> names_of(const FunctionsFile& file) {
  std::vector<std::string> names;
  for (const FunctionSpec& spec : file.functions) {
    names.push_back(file.tenants[static_cast<std::size_t>(spec.tenant)].name + "/" + spec.name);
  }
  return names;
}

Result<std::vector<FunctionCall>> read_calls(const SimulateArguments& a,
                                             const FunctionsFile& file) {
  if (!a.calls.empty()) {
    ASSIGN_OR_RETURN(const std::string text, read_file(a.calls, kMaxCallsBytes));
    return parse_calls(text, a.calls, names_of(file));
  }
  const auto functions = static_cast<std::int32_t>(file.functions.size());
  if (!a.trace.empty()) {
    TraceOptions options;
    options.rate_scale = a.rate_scale;
    options.length_scale = a.length_scale;
    ASSIGN_OR_RETURN(const Workload trace, read_trace(a.trace, options));
    return deal_calls(trace, functions, a.seed);
  }
  CallOptions options;
  options.functions = functions;
  ASSIGN_OR_RETURN(options.cov, cov_of_class(a.arrivals));
  options.rate = a.function_rate;
  options.seconds = a.seconds;
  options.prompt_tokens = a.prompt_tokens;
  options.output_tokens = a.output_tokens;
  options.seed = a.seed;
  return make_calls(options);
}

ReportJson json_of(const SystemSpec& system, const FunctionReport& report) {
  const auto times = [](const Quantiles& q) {
    return ReportJson{{"mean", q.mean}, {"p50", q.p50}, {"p90", q.p90}, {"p99", q.p99}};
  };
  ReportJson parts;
  for (std::size_t i = 0; i < kCallParts; ++i) {
    parts[std::string(kCallPartNames[i])] = report.parts[i];
  }
  return ReportJson{{"system", system.name},
                    {"calls", report.calls},
                    {"answered", report.answered},
                    {"refused", report.refused},
                    {"unplaced", report.unplaced},
                    {"violations", report.violations},
                    {"cold", report.cold},
                    {"starts", report.starts},
                    {"preloads", report.preloads},
                    {"offloads", report.offloads},
                    {"ttft_s", times(report.ttft)},
                    {"e2e_s", times(report.e2e)},
                    {"tpot_s", report.tpot_s},
                    {"core_seconds", report.core_seconds},
                    {"memory_gb_seconds", report.gb_seconds},
                    {"cost", report.cost},
                    {"parts_s", parts},
                    {"seconds", report.seconds}};
}

void print_row(const SystemSpec& system, const FunctionReport& report) {
  const auto percent = [&](std::int64_t count) {
    return 100 * static_cast<double>(count) /
           static_cast<double>(std::max<std::int64_t>(report.calls, 1));
  };
  fmt::print("{:<22}{:>9}{:>9.1f}{:>9.1f}{:>9.1f}{:>10.0f}{:>10.0f}{:>10.0f}{:>10.0f}{:>11.4f}\n",
             system.name, report.calls, percent(report.refused + report.unplaced),
             percent(report.violations), percent(report.cold), 1e3 * report.ttft.mean,
             1e3 * report.ttft.p50, 1e3 * report.ttft.p99, 1e3 * report.e2e.mean, report.cost);
}

}  // namespace

Status simulate_functions_file(const SimulateArguments& a) {
  if (a.cluster.empty()) {
    return invalid_argument(
        "--functions needs --cluster FILE, with the times of its machine; "
        "examples/cluster-l40s.toml is one");
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(a.functions, kMaxTomlBytes));
  ASSIGN_OR_RETURN(const FunctionsFile file, parse_functions(text, a.functions));
  ASSIGN_OR_RETURN(const std::string cluster_text, read_file(a.cluster, kMaxTomlBytes));
  ASSIGN_OR_RETURN(const ClusterSpec cluster, parse_cluster(cluster_text, a.cluster));
  ASSIGN_OR_RETURN(const std::vector<SimulatedFunction> functions,
                   simulated_functions(file, cluster));
  ASSIGN_OR_RETURN(const std::vector<SystemSpec> systems, parse_systems(a.systems));
  ASSIGN_OR_RETURN(const std::vector<FunctionCall> calls, read_calls(a, file));
  const PriceList prices = alibaba_prices();
  ReportJson all = ReportJson::array();
  if (!a.json) {
    fmt::print("{:<22}{:>9}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}{:>10}{:>11}\n", "system", "calls",
               "refused%", "late%", "cold%", "TTFT ms", "P50", "P99", "E2E ms",
               "cost " + prices.currency);
  }
  for (const SystemSpec& system : systems) {
    const FunctionReport report = simulate_functions(cluster, functions, calls, system, prices);
    if (a.json) {
      all.push_back(json_of(system, report));
    } else {
      print_row(system, report);
    }
  }
  if (a.json) fmt::print("{}\n", all.dump(2));
  return {};
}

}  // namespace sluice
