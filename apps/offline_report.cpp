#include "apps/offline_report.h"
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace sluice {
namespace {

using nlohmann::ordered_json;

// The percentiles of vllm bench latency.
constexpr int kBatchPercentiles[] = {10, 25, 50, 75, 90, 99};

// Latencies of batches in seconds, ascending; there are few, so they are kept exactly.
struct BatchLatencies {
  explicit BatchLatencies(const std::vector<Duration>& latencies) {
    for (const Duration latency : latencies) sorted.push_back(to_seconds(latency));
    std::sort(sorted.begin(), sorted.end());
    for (const double s : sorted) mean += s / static_cast<double>(sorted.size());
    double squares = 0;
    for (const double s : sorted) squares += (s - mean) * (s - mean);
    deviation = sorted.empty() ? 0 : std::sqrt(squares / static_cast<double>(sorted.size()));
  }
  // Interpolates linearly between two neighbours, as numpy.percentile does.
  double percentile(double percent) const {
    if (sorted.empty()) return 0;
    const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
  }

  std::vector<double> sorted;
  double mean = 0;
  double deviation = 0;
};

struct Kind {
  std::string_view name;
  const StepTotals& totals;
};

std::vector<Kind> kinds_of(const OfflineResult& result) {
  return {{"prefill", result.prefill}, {"decode", result.decode}, {"hybrid", result.hybrid}};
}

ordered_json steps_json(const StepTotals& totals) {
  ordered_json json = {{"steps", totals.steps},
                       {"prefill_tokens", totals.prefill_tokens},
                       {"decode_tokens", totals.decode_tokens},
                       {"seconds", to_seconds(totals.time)},
                       {"tokens_per_second", totals.tokens_per_second()},
                       {"tokens_per_step", totals.tokens_per_step()},
                       {"mean_step_ms", totals.step_ms()}};
  if (totals.device.busy > Duration(0)) {
    json["device_busy_seconds"] = to_seconds(totals.device.busy);
    json["device_idle_seconds"] = to_seconds(totals.device.idle);
  }
  const ComputedWork& computed = totals.computed;
  json["matmul_rows"] = computed.matmul_rows;
  json["matmul_rows_padding"] = computed.matmul_rows_padding;
  json["attention_pairs"] = computed.attention_pairs;
  json["attention_pairs_padding"] = computed.attention_pairs_padding;
  return json;
}

// The share of `part` in `whole`, in percent.
double percent_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string latency_line(std::string_view name, const LatencyPool& pool,
                         const std::vector<double>& percentiles) {
  std::string line =
      fmt::format("{} (ms): mean {:.2f}, median {:.2f}", name, to_milliseconds(pool.mean()),
                  to_milliseconds(pool.percentile(50)));
  for (const double percent : percentiles) {
    line += fmt::format(", P{} {:.2f}", percent, to_milliseconds(pool.percentile(percent)));
  }
  return line + "\n";
}

}  // namespace

std::string offline_json(const OfflineResult& result, const OfflineReport& report) {
  const ServingSummary& summary = result.summary;
  auto entries = report.facts;
  const auto add = [&](const char* key, const ordered_json& value) {
    entries.emplace_back(key, dump_json(value));
  };
  add("elapsed_time", to_seconds(summary.duration));
  add("num_requests", summary.completed);
  add("total_num_tokens", summary.total_input_tokens + summary.total_output_tokens);
  add("requests_per_second", summary.request_throughput());
  add("tokens_per_second", summary.total_token_throughput());
  if (report.batches) {
    const BatchLatencies latencies(result.latencies);
    ordered_json all = ordered_json::array();
    for (const Duration latency : result.latencies) all.push_back(to_seconds(latency));
    ordered_json percentiles;
    for (const int percent : kBatchPercentiles) {
      percentiles[std::to_string(percent)] = latencies.percentile(percent);
    }
    add("avg_latency", latencies.mean);
    add("std_latency", latencies.deviation);
    add("latencies", all);
    add("percentiles", percentiles);
  }
  for (const Kind& kind : kinds_of(result)) add(kind.name.data(), steps_json(kind.totals));
  add("preemptions", result.preemptions);
  add("not_started", result.not_started);
  return summary_json(summary, report.percentiles, entries);
}

std::string offline_text(const OfflineResult& result, const OfflineReport& report) {
  const ServingSummary& summary = result.summary;
  std::string text = fmt::format(
      "Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n"
      "Requests: {} completed, {} failed, {} unfinished, {} not started, in {:.2f} s\n"
      "Total num prompt tokens:  {}\nTotal num output tokens:  {}\n",
      summary.request_throughput(), summary.total_token_throughput(), summary.output_throughput(),
      summary.completed, summary.failed, summary.unfinished, result.not_started,
      to_seconds(summary.duration), summary.total_input_tokens, summary.total_output_tokens);
  if (report.batches && !result.latencies.empty()) {
    const BatchLatencies latencies(result.latencies);
    text += fmt::format("Avg latency: {:.4f} seconds (deviation {:.4f})\n", latencies.mean,
                        latencies.deviation);
    for (const int percent : kBatchPercentiles) {
      text += fmt::format("{}% percentile latency: {:.4f} seconds\n", percent,
                          latencies.percentile(percent));
    }
  }
  text += fmt::format("{:<10} {:>8} {:>10} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "steps", "number",
                      "seconds", "tokens/s", "tokens/step", "ms/step", "row pad %", "attn pad %");
  for (const Kind& kind : kinds_of(result)) {
    const StepTotals& totals = kind.totals;
    const ComputedWork& computed = totals.computed;
    text += fmt::format(
        "{:<10} {:>8} {:>10.3f} {:>12.1f} {:>12.1f} {:>12.3f} {:>12.1f} {:>12.1f}\n", kind.name,
        totals.steps, to_seconds(totals.time), totals.tokens_per_second(), totals.tokens_per_step(),
        totals.step_ms(), percent_of(computed.matmul_rows_padding, computed.matmul_rows),
        percent_of(computed.attention_pairs_padding, computed.attention_pairs));
  }
  text += latency_line("TTFT", summary.ttft, report.percentiles);
  text += latency_line("TPOT", summary.tpot, report.percentiles);
  text += latency_line("TBT", summary.tbt, report.percentiles);
  if (result.preemptions > 0) text += fmt::format("Preemptions: {}\n", result.preemptions);
  return text;
}

}  // namespace sluice
