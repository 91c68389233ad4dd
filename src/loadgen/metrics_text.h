// The part of a server's /metrics (Prometheus text) that a run reads: the numbers of running and
// waiting requests, the use of the KV cache, and the waiting times until the first step. Names are
// vLLM's after any namespace ("vllm:", "sluice:"). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice {

struct QueueTimeBucket {
  double upper = 0;  // seconds; the last is infinite
  double count = 0;  // at or below `upper`
};

struct ScrapedMetrics {
  std::optional<double> running;
  std::optional<double> waiting;
  std::optional<double> kv_usage;           // 0 to 1
  std::vector<QueueTimeBucket> queue_time;  // in ascending order; empty: not there
};

// Skips lines that it does not understand. Adds the values of several engines or models (KV usage:
// the largest).
ScrapedMetrics parse_metrics(std::string_view text);

// The median of the queue times recorded between two readings. `unknown` further requests of the
// run were never recorded, because they had not run; they count as longer than all others. Nothing
// if the median is one of them or if there are no requests.
std::optional<Duration> median_queue_time(const std::vector<QueueTimeBucket>& before,
                                          const std::vector<QueueTimeBucket>& after,
                                          std::int64_t unknown);

// The number of queue times recorded between two readings.
std::int64_t queue_time_count(const std::vector<QueueTimeBucket>& before,
                              const std::vector<QueueTimeBucket>& after);

}  // namespace sluice
