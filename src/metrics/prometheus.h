// PrometheusWriter: metrics as Prometheus's text exposition format 0.0.4. Each family begins with
// one of counter(), gauge(), histogram(), which write HELP and TYPE; then come its samples.
//
//   PrometheusWriter writer("sluice:", out);
//   writer.counter("prompt_tokens_total", "Prompt tokens computed.");
//   writer.value({{"model_name", "demo"}}, prompt_tokens.value());
//
// Owner: the caller that writes; it lives for one exposition. Threads: one.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "metrics/histogram.h"

namespace sluice {

inline constexpr std::string_view kPrometheusContentType =
    "text/plain; version=0.0.4; charset=utf-8";

struct MetricLabel {
  std::string_view name;   // [a-zA-Z_][a-zA-Z0-9_]*
  std::string_view value;  // any UTF-8
};

class PrometheusWriter {
 public:
  // Appends to `out`, which outlives this. `prefix` precedes every name.
  PrometheusWriter(std::string_view prefix, std::string& out);

  // Begins a family. A name is used once, without prefix: [a-zA-Z_:][a-zA-Z0-9_:]*. Counters end
  // in _total by convention.
  void counter(std::string_view name, std::string_view help);
  void gauge(std::string_view name, std::string_view help);
  void histogram(std::string_view name, std::string_view help);

  // Adds a sample to the family begun last.
  void value(std::span<const MetricLabel> labels, double value);
  void value(std::initializer_list<MetricLabel> labels, double number) {
    value(std::span(labels.begin(), labels.size()), number);
  }
  void buckets(std::span<const MetricLabel> labels, const Histogram& histogram);
  void buckets(std::initializer_list<MetricLabel> labels, const Histogram& histogram) {
    buckets(std::span(labels.begin(), labels.size()), histogram);
  }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view suffix, std::span<const MetricLabel> labels, std::string_view le,
              double value);

  std::string prefix_;
  std::string& out_;
  std::string family_;
};

// 1, 0.25, 1e-05, +Inf, -Inf, NaN: shortest text that reads back equal.
void append_metric_value(double value, std::string& out);

}  // namespace sluice
