#include "gateway/gateway_metrics.h"

#include "metrics/prometheus.h"

namespace sluice {

void write_gateway_metrics(const GatewayCounts& counts, std::string_view prefix, std::string& out) {
  PrometheusWriter writer(prefix, out);
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    writer.gauge(name, help);
    writer.value({}, value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, double value) {
    writer.counter(name, help);
    writer.value({}, value);
  };
  gauge("gateway_functions", "Functions that can be called.", counts.functions);
  writer.gauge("gateway_instances", "Function processes, by state.");
  writer.value({{"state", "ready"}}, counts.instances - counts.starting);
  writer.value({{"state", "starting"}}, counts.starting);
  gauge("gateway_backbones_loaded", "Backbones in memory.", counts.backbones_loaded);
  gauge("gateway_backbone_bytes", "Bytes of the backbones in memory.",
        static_cast<double>(counts.backbone_bytes));
  gauge("gateway_backbones_warm", "Backbones whose warm workers are kept.", counts.backbones_warm);
  gauge("gateway_calls_held", "Calls that wait for a start, a place or a turn.", counts.waiting);
  gauge("gateway_calls_prefilling", "Calls that were dispatched and have no first token.",
        counts.prefills);
  counter("gateway_starts_total", "Starts of function processes.",
          static_cast<double>(counts.starts));
  counter("gateway_warm_starts_total", "Starts of functions that found a warm worker.",
          static_cast<double>(counts.warm));
  counter("gateway_starts_ready_total", "Other starts of functions that have ended well.",
          static_cast<double>(counts.ready));
  counter("gateway_start_seconds_total", "Time of those starts, together.",
          to_seconds(counts.start_time));
  counter("gateway_backbone_loads_total", "Loads of backbones after the gateway's start.",
          static_cast<double>(counts.loads));
  counter("gateway_backbone_unloads_total", "Backbones that left the memory.",
          static_cast<double>(counts.unloads));
  writer.counter("gateway_calls_refused_total", "Calls that the gateway refused, by reason.");
  for (std::size_t i = 0; i < kGatewayRefusals; ++i) {
    writer.value({{"reason", kGatewayRefusalNames[i]}}, static_cast<double>(counts.refused[i]));
  }
}

}  // namespace sluice
