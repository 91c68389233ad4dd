#include "metrics/prometheus.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace sluice {
namespace {

bool is_name(std::string_view name, bool colons) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    if (!letter && !digit && c != '_' && !(colons && c == ':')) return false;
  }
  return true;
}

// Backslash and line feed always, the quote within label values only.
void append_escaped(std::string_view text, bool quoted, std::string& out) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (quoted && c == '"')) out += '\\';
    out += c;
  }
}

void append_label(std::string_view name, std::string_view value, char before, std::string& out) {
  out += before;
  out += name;
  out += "=\"";
  append_escaped(value, true, out);
  out += '"';
}

}  // namespace

void append_metric_value(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else {
    append_format(out, "{}", value);
  }
}

PrometheusWriter::PrometheusWriter(std::string_view prefix, std::string& out)
    : prefix_(prefix), out_(out) {
  CHECK(prefix_.empty() || is_name(prefix_, true));
}

void PrometheusWriter::counter(std::string_view name, std::string_view help) {
  begin(name, help, "counter");
}

void PrometheusWriter::gauge(std::string_view name, std::string_view help) {
  begin(name, help, "gauge");
}

void PrometheusWriter::histogram(std::string_view name, std::string_view help) {
  begin(name, help, "histogram");
}

void PrometheusWriter::begin(std::string_view name, std::string_view help, std::string_view type) {
  CHECK(is_name(name, true));
  family_ = prefix_;
  family_ += name;
  out_ += "# HELP ";
  out_ += family_;
  out_ += ' ';
  append_escaped(help, false, out_);
  out_ += "\n# TYPE ";
  out_ += family_;
  out_ += ' ';
  out_ += type;
  out_ += '\n';
}

void PrometheusWriter::value(std::span<const MetricLabel> labels, double value) {
  sample("", labels, "", value);
}

void PrometheusWriter::buckets(std::span<const MetricLabel> labels, const Histogram& histogram) {
  std::int64_t cumulative = 0;
  std::string le;
  for (std::size_t i = 0; i < histogram.counts().size(); ++i) {
    cumulative += histogram.counts()[i];
    le.clear();
    append_metric_value(i < histogram.bounds().size() ? histogram.bounds()[i] : INFINITY, le);
    sample("_bucket", labels, le, static_cast<double>(cumulative));
  }
  sample("_sum", labels, "", histogram.sum());
  sample("_count", labels, "", static_cast<double>(histogram.count()));
}

// `le` is empty for anything but a bucket.
void PrometheusWriter::sample(std::string_view suffix, std::span<const MetricLabel> labels,
                              std::string_view le, double value) {
  CHECK(!family_.empty());
  out_ += family_;
  out_ += suffix;
  char before = '{';
  for (const MetricLabel& label : labels) {
    DCHECK(is_name(label.name, false) && label.name != "le");
    append_label(label.name, label.value, before, out_);
    before = ',';
  }
  if (!le.empty()) {
    append_label("le", le, before, out_);
    before = ',';
  }
  if (before == ',') out_ += '}';
  out_ += ' ';
  append_metric_value(value, out_);
  out_ += '\n';
}

}  // namespace sluice
