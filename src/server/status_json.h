// The JSON of GET /status, for the page and for people: gauges, latencies and unfinished requests.
// It has ids and counts only, never prompts or answers. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "server/engine_loop.h"
#include "server/live_stats.h"

namespace sluice {

struct StatusSpan {
  std::string name;
  Duration duration{0};
  Duration begin{0};    // since the start
  bool beside = false;  // other spans ran at the same time
};

struct StatusRequest {
  std::string id;
  std::string client;
  std::string_view kind;  // "chat", "completion"
  Duration age{0};
  std::optional<Duration> ttft;
  RequestProgress progress;
};

struct ServerStatus {
  std::string model;
  std::string_view state;  // "loading", "ready", "draining", "failed"
  Duration uptime{0};
  EngineGauges gauges;
  double prompt_tps = 0;  // tokens per second
  double generation_tps = 0;
  std::optional<RecentDurations::Percentiles> ttft;
  std::optional<RecentDurations::Percentiles> tbt;
  std::span<const StatusRequest> requests;
  std::span<const StatusSpan> startup;
};

std::string status_json(const ServerStatus& status);

}  // namespace sluice
