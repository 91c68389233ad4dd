#include "loadgen/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::optional<double> parse_value(std::string_view text) {
  if (text == "+Inf") return kInfinity;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

struct Sample {
  std::string_view name;  // without the namespace
  std::string_view labels;
  double value = 0;
};

// name{labels} value [timestamp]
std::optional<Sample> parse_sample(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  Sample sample;
  const std::size_t name_end = line.find_first_of("{ ");
  if (name_end == std::string_view::npos) return std::nullopt;
  sample.name = line.substr(0, name_end);
  const std::size_t colon = sample.name.find(':');
  if (colon != std::string_view::npos) sample.name.remove_prefix(colon + 1);
  std::string_view rest = line.substr(name_end);
  if (rest.front() == '{') {
    // Label values may contain braces, but an unescaped quote, a brace and a blank only end the
    // labels.
    const std::size_t end = rest.rfind("} ");
    if (end == std::string_view::npos) return std::nullopt;
    sample.labels = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  }
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto value = parse_value(rest.substr(0, rest.find(' ')));
  if (!value || !std::isfinite(*value)) return std::nullopt;
  sample.value = *value;
  return sample;
}

std::optional<double> upper_bound_of(std::string_view labels) {
  constexpr std::string_view kLabel = "le=\"";
  std::size_t at = labels.find(kLabel);
  while (at != std::string_view::npos && at > 0 && labels[at - 1] != ',') {
    at = labels.find(kLabel, at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view value = labels.substr(at + kLabel.size());
  return parse_value(value.substr(0, value.find('"')));
}

void add_to(std::optional<double>& sum, double value) { sum = sum.value_or(0) + value; }

void add_bucket(std::vector<QueueTimeBucket>& buckets, double upper, double count) {
  const auto at = std::lower_bound(
      buckets.begin(), buckets.end(), upper,
      [](const QueueTimeBucket& bucket, double bound) { return bucket.upper < bound; });
  if (at != buckets.end() && at->upper == upper) {
    at->count += count;
  } else {
    buckets.insert(at, {upper, count});
  }
}

// Requests in each bucket between two readings. A server that was restarted counts from zero.
std::vector<QueueTimeBucket> difference(const std::vector<QueueTimeBucket>& before,
                                        const std::vector<QueueTimeBucket>& after) {
  const bool comparable =
      before.size() == after.size() &&
      std::equal(before.begin(), before.end(), after.begin(), [](const auto& a, const auto& b) {
        return a.upper == b.upper && a.count <= b.count;
      });
  std::vector<QueueTimeBucket> out = after;
  for (std::size_t i = 0; comparable && i < out.size(); ++i) out[i].count -= before[i].count;
  return out;
}

}  // namespace

ScrapedMetrics parse_metrics(std::string_view text) {
  ScrapedMetrics metrics;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto sample = parse_sample(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!sample) continue;
    if (sample->name == "num_requests_running") {
      add_to(metrics.running, sample->value);
    } else if (sample->name == "num_requests_waiting") {
      add_to(metrics.waiting, sample->value);
    } else if (sample->name == "kv_cache_usage_perc" || sample->name == "gpu_cache_usage_perc") {
      metrics.kv_usage = std::max(metrics.kv_usage.value_or(0), sample->value);
    } else if (sample->name == "request_queue_time_seconds_bucket") {
      if (const auto upper = upper_bound_of(sample->labels)) {
        add_bucket(metrics.queue_time, *upper, sample->value);
      }
    }
  }
  return metrics;
}

std::int64_t queue_time_count(const std::vector<QueueTimeBucket>& before,
                              const std::vector<QueueTimeBucket>& after) {
  const auto buckets = difference(before, after);
  return buckets.empty() ? 0 : std::llround(buckets.back().count);
}

std::optional<Duration> median_queue_time(const std::vector<QueueTimeBucket>& before,
                                          const std::vector<QueueTimeBucket>& after,
                                          std::int64_t unknown) {
  const auto buckets = difference(before, after);
  const double known = buckets.empty() ? 0 : buckets.back().count;
  const double rank = (known + static_cast<double>(unknown)) / 2;
  if (known == 0 || rank > known) return std::nullopt;
  double lower = 0;
  double below = 0;
  for (const QueueTimeBucket& bucket : buckets) {
    if (bucket.count >= rank && bucket.count > below) {
      // Interpolates within a bucket as Prometheus does; the last bucket has no upper bound.
      const double upper = std::isinf(bucket.upper) ? lower : bucket.upper;
      const double seconds = lower + (upper - lower) * (rank - below) / (bucket.count - below);
      return from_seconds(seconds);
    }
    lower = bucket.upper;
    below = bucket.count;
  }
  return std::nullopt;
}

}  // namespace sluice
