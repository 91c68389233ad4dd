// Writes a ServingSummary as JSON and as a table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "workload/serving_summary.h"

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

struct Figure {
  std::string_view key;    // of JSON
  std::string_view name;   // of the table's lines
  std::string_view title;  // of the table's part
  const LatencyPool& pool;
};

std::vector<Figure> figures_of(const ServingSummary& summary) {
  std::vector<Figure> figures = {
      {"ttft", "TTFT", "Time to First Token", summary.ttft},
      {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", summary.tpot},
      // tidy: allow(word) vLLM's key, line and title of TBT, which readers of its output look for
      {"itl", "ITL", "Inter-token Latency", summary.tbt},
      {"e2el", "E2EL", "End-to-end Latency", summary.e2el},
  };
  if (summary.scheduling_delay.count() > 0) {
    figures.push_back({"scheduling_delay", "delay", "Scheduling Delay", summary.scheduling_delay});
  }
  return figures;
}

std::vector<double> with_p99(std::vector<double> percentiles) {
  percentiles.push_back(99);
  std::sort(percentiles.begin(), percentiles.end());
  percentiles.erase(std::unique(percentiles.begin(), percentiles.end()), percentiles.end());
  return percentiles;
}

// "99", "99.9".
std::string percent_text(double percent) { return fmt::format("{}", percent); }

void add_latencies(const Figure& figure, const std::vector<double>& percentiles, Json& json) {
  const auto set = [&](const std::string& what, Duration value) {
    json[fmt::format("{}_{}_ms", what, figure.key)] = to_milliseconds(value);
  };
  set("mean", figure.pool.mean());
  set("median", figure.pool.percentile(50));
  set("std", figure.pool.deviation());
  for (const double percent : percentiles) {
    set("p" + percent_text(percent), figure.pool.percentile(percent));
  }
}

class Table {
 public:
  void title(std::string_view text, char fill) {
    // {:-^50}
    const std::size_t free = text.size() < 50 ? 50 - text.size() : 0;
    text_ += std::string(free / 2, fill).append(text).append(free - free / 2, fill) += '\n';
  }
  void line(std::string_view name, std::int64_t value) { add("{:<40} {:<10}\n", name, value); }
  void line(std::string_view name, double value) { add("{:<40} {:<10.2f}\n", name, value); }
  std::string take() { return std::move(text_); }

 private:
  template <class T>
  void add(fmt::format_string<std::string_view&, T&> format, std::string_view name, T value) {
    append_format(text_, format, name, value);
  }
  std::string text_;
};

}  // namespace

std::string summary_json(const ServingSummary& summary, const std::vector<double>& percentiles,
                         const std::vector<std::pair<std::string, std::string>>& extra) {
  Json json;
  json["duration"] = to_seconds(summary.duration);
  json["completed"] = summary.completed;
  json["failed"] = summary.failed;
  json["total_input_tokens"] = summary.total_input_tokens;
  json["total_output_tokens"] = summary.total_output_tokens;
  json["request_throughput"] = summary.request_throughput();
  json["request_goodput"] = nullptr;
  if (summary.has_goodput) json["request_goodput"] = summary.request_goodput();
  json["output_throughput"] = summary.output_throughput();
  json["total_token_throughput"] = summary.total_token_throughput();
  json["max_output_tokens_per_s"] = summary.max_output_tokens_per_s;
  json["max_concurrent_requests"] = summary.max_concurrent_requests;
  const std::vector<double> shown = with_p99(percentiles);
  const std::vector<Figure> figures = figures_of(summary);
  for (const Figure& figure : figures) {
    if (figure.key != "scheduling_delay") add_latencies(figure, shown, json);
  }
  json["unfinished"] = summary.unfinished;
  json["realised_request_rate"] = summary.realised_rate;
  if (figures.back().key == "scheduling_delay") add_latencies(figures.back(), shown, json);

  const std::string ours = dump_json(json);
  std::string text = "{";
  // Values of `extra` are JSON already and may be large (lists of every request): not parsed again.
  for (const auto& [key, value] : extra) text += dump_json(Json(key)) + ":" + value + ",";
  return text.append(ours, 1);
}

std::string summary_table(const ServingSummary& summary, const std::vector<double>& percentiles,
                          const std::vector<std::string>& metrics) {
  Table table;
  table.title(" Serving Benchmark Result ", '=');
  table.line("Successful requests:", summary.completed);
  table.line("Failed requests:", summary.failed);
  table.line("Unfinished requests:", summary.unfinished);
  table.line("Benchmark duration (s):", to_seconds(summary.duration));
  table.line("Total input tokens:", summary.total_input_tokens);
  table.line("Total generated tokens:", summary.total_output_tokens);
  table.line("Realised request rate (req/s):", summary.realised_rate);
  table.line("Request throughput (req/s):", summary.request_throughput());
  if (summary.has_goodput) table.line("Request goodput (req/s):", summary.request_goodput());
  table.line("Output token throughput (tok/s):", summary.output_throughput());
  table.line("Peak output token throughput (tok/s):",
             static_cast<double>(summary.max_output_tokens_per_s));
  table.line("Peak concurrent requests:", static_cast<double>(summary.max_concurrent_requests));
  table.line("Total token throughput (tok/s):", summary.total_token_throughput());
  for (const Figure& figure : figures_of(summary)) {
    const bool asked = std::find(metrics.begin(), metrics.end(), figure.key) != metrics.end();
    if (!metrics.empty() && !asked && figure.key != "scheduling_delay") continue;
    table.title(figure.title, '-');
    const auto line = [&](const std::string& what, Duration value) {
      table.line(fmt::format("{} {} (ms):", what, figure.name), to_milliseconds(value));
    };
    line("Mean", figure.pool.mean());
    line("Median", figure.pool.percentile(50));
    for (const double percent : with_p99(percentiles)) {
      line("P" + percent_text(percent), figure.pool.percentile(percent));
    }
  }
  table.title("", '=');
  return table.take();
}

}  // namespace sluice
