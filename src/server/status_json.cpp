#include "server/status_json.h"
#include "base/json.h"

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using nlohmann::ordered_json;

ordered_json latency_json(const std::optional<RecentDurations::Percentiles>& latency) {
  if (!latency) return {{"p50", nullptr}, {"p99", nullptr}};
  return {{"p50", to_milliseconds(latency->p50)}, {"p99", to_milliseconds(latency->p99)}};
}

std::string_view state_of(const RequestProgress& progress, bool any_token) {
  if (progress.running == 0) return "waiting";
  return any_token || progress.output_tokens > 0 ? "decode" : "prefill";
}

ordered_json request_json(const StatusRequest& request) {
  const RequestProgress& progress = request.progress;
  return {{"id", request.id},
          {"client", request.client},
          {"kind", request.kind},
          {"state", state_of(progress, request.ttft.has_value())},
          {"age_s", to_seconds(request.age)},
          {"prompt_tokens", progress.prompt_tokens},
          {"computed_tokens", progress.computed_tokens},
          {"output_tokens", progress.output_tokens},
          {"ttft_ms", request.ttft ? ordered_json(to_milliseconds(*request.ttft)) : nullptr}};
}

}  // namespace

std::string status_json(const ServerStatus& status) {
  const EngineGauges& gauges = status.gauges;
  ordered_json object = {
      {"model", status.model},
      {"state", status.state},
      {"uptime_s", to_seconds(status.uptime)},
      {"running", gauges.running},
      {"waiting", gauges.waiting},
      {"kv",
       {{"blocks", gauges.kv_blocks},
        {"used", gauges.kv_blocks_used},
        {"cached", gauges.kv_blocks_cached}}},
      {"throughput",
       {{"prompt_tps", status.prompt_tps}, {"generation_tps", status.generation_tps}}},
      {"ttft_ms", latency_json(status.ttft)},
      {"tbt_ms", latency_json(status.tbt)},
      {"requests", ordered_json::array()},
      {"startup", ordered_json::array()}};
  for (const StatusRequest& request : status.requests) {
    object["requests"].push_back(request_json(request));
  }
  for (const StatusSpan& span : status.startup) {
    object["startup"].push_back({{"span", span.name},
                                 {"from_ms", to_milliseconds(span.begin)},
                                 {"ms", to_milliseconds(span.duration)},
                                 {"beside", span.beside}});
  }
  // Client names may come from clients: bytes that are not UTF-8 are replaced.
  return dump_json(object);
}

}  // namespace sluice
