// The part of a server's /metrics (Prometheus text) that a run reads: the numbers of running and
// waiting requests, the use of the KV cache, and the waiting times until the first step. Names are
// vLLM's behind any namespace ("vllm:", "sluice:"). Pure; any thread.
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

// Lines it does not understand are passed over. Values of several engines or models are added (KV
// usage: the greatest).
ScrapedMetrics parse_metrics(std::string_view text);

// The median of the queue times recorded between two readings. `unknown` more requests belong to
// the run and were never recorded, because they had not run: they count as longer than all others.
// Nothing: the median is one of them, or there are no requests.
std::optional<Duration> median_queue_time(const std::vector<QueueTimeBucket>& before,
                                          const std::vector<QueueTimeBucket>& after,
                                          std::int64_t unknown);

// The number of queue times recorded between two readings.
std::int64_t queue_time_count(const std::vector<QueueTimeBucket>& before,
                              const std::vector<QueueTimeBucket>& after);

}  // namespace sluice
