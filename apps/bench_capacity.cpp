#include "apps/bench_capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench_progress.h"
#include "apps/exit_code.h"
#include "base/json.h"
#include "base/log.h"
#include "loadgen/capacity_prober.h"
#include "loadgen/report.h"
#include "loadgen/warm_up.h"

namespace sluice {
namespace {

using Outcomes = std::vector<CapacityProber::Outcome>;

Status check_arguments(const BenchArguments& arguments) {
  if (!arguments.tbt_slo_ms) {
    return invalid_argument("--tbt-slo-ms is missing: the P99 TBT that must be met, such as 200");
  }
  if (!arguments.trace.empty() || arguments.request_rate != "inf" || !arguments.ramp_up.empty() ||
      arguments.max_concurrency) {
    return invalid_argument(
        "bench capacity chooses the request rate itself; --trace, --request-rate, "
        "--ramp-up-strategy and --max-concurrency belong to bench serve");
  }
  if (arguments.save_result) {
    return invalid_argument("--save-result belongs to bench serve; here --json gives all probes");
  }
  return {};
}

CapacityOptions search_options(const BenchArguments& arguments) {
  CapacityOptions options;
  options.objective.p99_tbt = from_seconds(*arguments.tbt_slo_ms / 1000);
  options.objective.median_scheduling_delay = from_seconds(arguments.scheduling_delay_s);
  options.start_rate = arguments.start_rate;
  options.resolution = arguments.resolution;
  options.max_probes = arguments.max_probes;
  return options;
}

std::string probes_text(const Outcomes& outcomes) {
  std::string out =
      fmt::format("{:>10} {:>10} {:>12} {:>14} {:>14} {:>10}  {}\n", "requests/s", "realised",
                  "P99 TBT ms", "delay P50 ms", "TTFT P50 ms", "tok/s", "objective");
  for (const auto& [point, json] : outcomes) {
    out += fmt::format("{:>10.3f} {:>10.3f} {:>12.1f} {:>14.1f} {:>14.1f} {:>10.1f}  {}\n",
                       point.rate, point.realised, point.p99_tbt_ms, point.median_delay_ms,
                       point.median_ttft_ms, point.output_throughput, point.met ? "met" : "missed");
  }
  return out;
}

// The search's result, in a sentence.
std::string verdict(const BenchArguments& arguments, const CapacityResult& result,
                    const Outcomes& outcomes) {
  const std::string objectives =
      fmt::format("P99 TBT at most {} ms and a median scheduling delay of at most {} s",
                  *arguments.tbt_slo_ms, arguments.scheduling_delay_s);
  if (result.rate > 0) {
    std::string bound = "no rate that was tried failed";
    if (result.failing_rate > 0) bound = fmt::format("{:.3f} failed", result.failing_rate);
    return fmt::format("Capacity: {:.3f} requests/s with {} ({}{})\n", result.rate, objectives,
                       bound, result.exhausted ? "; stopped by --max-probes" : "");
  }
  const auto least = std::min_element(
      outcomes.begin(), outcomes.end(),
      [](const auto& a, const auto& b) { return a.point.p99_tbt_ms < b.point.p99_tbt_ms; });
  return fmt::format(
      "Capacity: none. Down to {:.4f} requests/s nothing met {}; the smallest P99 TBT seen was "
      "{:.1f} ms, at {:.4f} requests/s\n",
      result.failing_rate, objectives, least->point.p99_tbt_ms, least->point.rate);
}

std::string result_json(const BenchArguments& arguments, const CapacityProber& prober,
                        const CapacityResult& result, const Outcomes& outcomes) {
  nlohmann::ordered_json json = {{"capacity_request_rate", result.rate},
                                 {"failing_request_rate", nullptr},
                                 {"exhausted", result.exhausted},
                                 {"tbt_slo_ms", *arguments.tbt_slo_ms},
                                 {"scheduling_delay_slo_s", arguments.scheduling_delay_s},
                                 {"scheduling_delay_source", prober.delay_source()},
                                 {"probes", nlohmann::ordered_json::array()}};
  if (result.failing_rate > 0) json["failing_request_rate"] = result.failing_rate;
  for (const auto& outcome : outcomes) {
    nlohmann::ordered_json probe = {{"met", outcome.point.met}};
    probe.update(parse_ordered_json(outcome.json));
    json["probes"].push_back(std::move(probe));
  }
  return dump_json(json);
}

Status report_probes(const BenchArguments& arguments, const BenchPlan& plan,
                     const CapacityProber& prober, const Outcomes& outcomes,
                     const std::string& text) {
  ReportInput input;
  input.title = "sluice bench capacity";
  input.facts = {{"Server", arguments.base_url},
                 {"Model", plan.server.model},
                 {"Lengths", plan.workload.lengths},
                 {"Objective", fmt::format("P99 TBT {} ms, median scheduling delay {} s",
                                           *arguments.tbt_slo_ms, arguments.scheduling_delay_s)},
                 {"Scheduling delay from", std::string(prober.delay_source())},
                 {"Date", timestamp_text() + " UTC"}};
  input.table = text;
  input.tbt_slo_ms = *arguments.tbt_slo_ms;
  for (const auto& outcome : outcomes) input.probes.push_back(outcome.point);
  return write_bench_report(arguments.report, input);
}

Result<int> bench_capacity(const BenchArguments& arguments) {
  RETURN_IF_ERROR(check_arguments(arguments));
  ASSIGN_OR_RETURN(BenchPlan plan, make_bench_plan(arguments));
  plan.workload.count = arguments.num_prompts.value_or(kProbeRequests);
  if (!arguments.report.empty()) RETURN_IF_ERROR(prepare_report(arguments.report));
  ASSIGN_OR_RETURN(const MadeWorkload sample, make_workload(plan.workload));
  RETURN_IF_ERROR(warm_up(plan.load, sample.workload,
                          PromptMaker(plan.token_ids, plan.workload.seed), arguments.num_warmups));
  BenchProgress progress(!arguments.no_progress);
  progress.attach(plan.load);
  CapacityProber prober({.load = plan.load,
                         .workload = plan.workload,
                         .token_ids = plan.token_ids,
                         .percentiles = plan.percentiles,
                         .probe_seconds = arguments.probe_seconds,
                         .run_ended = [&] { progress.end(); }});
  RETURN_IF_ERROR(prober.prepare());
  const auto found =
      search_capacity(search_options(arguments), [&](double rate) { return prober.probe(rate); });
  progress.end();
  Outcomes& outcomes = prober.outcomes();
  if (!found) {
    // The probes so far are printed nevertheless.
    if (!outcomes.empty()) std::fputs(probes_text(outcomes).c_str(), stderr);
    return found.error();
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i].point.met = found->probes[i].met;
  const std::string text = probes_text(outcomes) + verdict(arguments, *found, outcomes);
  fmt::print("{}", arguments.json ? result_json(arguments, prober, *found, outcomes) + "\n" : text);
  std::fflush(stdout);
  if (!arguments.report.empty()) {
    RETURN_IF_ERROR(report_probes(arguments, plan, prober, outcomes, text));
  }
  return found->rate > 0 ? kExitSuccess : kExitError;
}

}  // namespace

int run_bench_capacity(const BenchArguments& arguments) {
  const auto code = bench_capacity(arguments);
  if (!code) return report_error(code.error(), exit_code_for(code.error()));
  return *code;
}

}  // namespace sluice
