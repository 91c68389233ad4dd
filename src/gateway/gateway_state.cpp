#include "gateway/gateway_state.h"

#include <fmt/format.h>

#include <cstddef>

#include "server/json_writer.h"

namespace sluice {
namespace {

std::string_view phase_name(FunctionPhase phase) {
  switch (phase) {
    case FunctionPhase::kAbsent: return "absent";
    case FunctionPhase::kHeld: return "held";
    case FunctionPhase::kStarting: return "starting";
    case FunctionPhase::kReady: return "ready";
  }
  return "absent";
}

void append_text(std::string_view name, std::string_view text, std::string& out) {
  out += fmt::format(R"("{}":)", name);
  append_json_string(text, out);
  out += ',';
}

void append_function(const GatewayState::Function& function, std::string& out) {
  const FunctionView& view = function.view;
  out += '{';
  append_text("name", function.name, out);
  append_text("tenant", function.tenant, out);
  append_text("backbone", function.backbone, out);
  out +=
      fmt::format(R"("state":"{}","waiting":{},"running":{},"calls":{},"bytes":{},"cost":{:.9f})",
                  phase_name(view.phase), view.waiting, view.running, view.calls, view.own_bytes,
                  function.cost);
  if (view.adapter_bytes) out += fmt::format(R"(,"adapter_bytes":{})", *view.adapter_bytes);
  if (view.ttft) {
    out += fmt::format(R"(,"ttft_ms":{{"p50":{:.3f},"p99":{:.3f}}})",
                       to_milliseconds(view.ttft->p50), to_milliseconds(view.ttft->p99));
  }
  out += '}';
}

void append_backbone(const GatewayState::Backbone& backbone, std::string& out) {
  const BackboneView& view = backbone.view;
  out += '{';
  append_text("name", backbone.name, out);
  out += fmt::format(R"("state":"{}","bytes":{},"instances":{},"worker_bytes":{}}})",
                     view.is_loaded    ? "loaded"
                     : view.is_loading ? "loading"
                                       : "absent",
                     view.bytes, view.instances, view.worker_bytes);
}

void append_agent(const GatewayState::Agent& agent, std::string& out) {
  out += '{';
  append_text("name", agent.name, out);
  append_text("state", agent.state, out);
  out +=
      fmt::format(R"("lease_s":{:.3f},"places":{},"memory_bytes":{},"free_bytes":{},)",
                  to_seconds(agent.lease_left), agent.places, agent.memory_bytes, agent.free_bytes);
  out += R"("backbones":)";
  append_json_list(agent.backbones, out, [&](const GatewayState::Agent::Backbone& one) {
    out += '{';
    append_text("name", one.name, out);
    append_text("state", one.state, out);
    out += fmt::format(R"("workers":{},"adapters":{}}})", one.workers, one.adapters);
  });
  out += R"(,"functions":)";
  append_json_list(agent.functions, out,
                   [&](std::string_view name) { append_json_string(name, out); });
  out += '}';
}

void append_machine(const GatewayState::Machine& machine, std::string& out) {
  const GatewayCounts& counts = machine.counts;
  out += fmt::format(
      R"(,"machine":{{"instances":{},"max_instances":{},"starting":{},"waiting":{},"starts":{},)"
      R"("warm_starts":{},"memory_bytes":{},"free_bytes":{},"platform_cost":{:.9f},"refused":{{)",
      counts.instances, machine.max_instances, counts.starting, counts.waiting, counts.starts,
      counts.warm, machine.memory_bytes, machine.free_bytes, machine.platform_cost);
  for (std::size_t i = 0; i < kGatewayRefusals; ++i) {
    out +=
        fmt::format(R"({}"{}":{})", i == 0 ? "" : ",", kGatewayRefusalNames[i], counts.refused[i]);
  }
  out += R"(},"backbones":)";
  append_json_list(machine.backbones, out,
                   [&](const GatewayState::Backbone& one) { append_backbone(one, out); });
  out += R"(,"agents":)";
  append_json_list(machine.agents, out,
                   [&](const GatewayState::Agent& one) { append_agent(one, out); });
  out += '}';
}

}  // namespace

std::string gateway_state_json(const GatewayState& state) {
  std::string out = "{";
  append_text("state", state.state, out);
  append_text("currency", state.currency, out);
  out += fmt::format(R"("uptime_s":{:.3f},"functions_total":{},"functions":)",
                     to_seconds(state.uptime), state.functions_total);
  append_json_list(state.functions, out,
                   [&](const GatewayState::Function& one) { append_function(one, out); });
  if (state.machine) append_machine(*state.machine, out);
  out += '}';
  return out;
}

}  // namespace sluice
