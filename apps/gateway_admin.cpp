#include "apps/gateway_admin.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "gateway/admin_action.h"
#include "gateway/functions_page.h"
#include "server/error_response.h"
#include "server/page.h"

namespace sluice {
namespace {

// Functions in one answer: those with a process or calls, and those that were called most.
constexpr std::size_t kMostFunctions = 1000;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

const std::string& tenant_of(const FunctionsFile& file, std::size_t function) {
  return file.tenants[at(file.functions[function].tenant)].name;
}

// The positions of the functions that this key may see, the most important ones first.
std::vector<std::size_t> visible_functions(const GatewayParts& parts, const ApiKey& key) {
  const auto tenant = std::ranges::find(parts.file.tenants, key.name, &TenantSpec::name) -
                      parts.file.tenants.begin();
  std::vector<std::size_t> visible;
  for (std::size_t i = 0; i < parts.numbers.size(); ++i) {
    if (key.is_admin || parts.file.functions[i].tenant == tenant) visible.push_back(i);
  }
  if (visible.size() <= kMostFunctions) return visible;
  const auto rank = [&](std::size_t i) {
    const std::int32_t number = parts.numbers[i];
    return std::tuple(!parts.functions.is_active(number), -parts.functions.calls(number), i);
  };
  std::ranges::partial_sort(visible, visible.begin() + kMostFunctions, {}, rank);
  return visible;
}

GatewayState::Machine machine_of(const GatewayParts& parts, double platform_cost) {
  GatewayState::Machine machine;
  machine.counts = parts.functions.counts();
  machine.max_instances = parts.max_instances;
  machine.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  machine.free_bytes = parts.host.free_bytes();
  machine.platform_cost = platform_cost;
  if (parts.numbers.empty()) return machine;
  for (std::int32_t i = 0; i < std::ssize(parts.file.backbones); ++i) {
    machine.backbones.push_back(
        {parts.file.backbones[at(i)].name, parts.functions.backbone_view(i)});
  }
  return machine;
}

// `functions`: all that the answer has. The names are borrowed.
std::vector<GatewayState::Agent> agents_of(const GatewayParts& parts,
                                           const std::vector<GatewayState::Function>& functions) {
  std::vector<GatewayState::Agent> agents;
  const AgentHub* const hub = parts.agents();
  if (hub == nullptr) return agents;
  for (const AgentView& seen : hub->agents()) {
    GatewayState::Agent& agent = agents.emplace_back();
    agent.name = seen.name;
    agent.state = agent_phase_name(seen.phase);
    agent.lease_left = hub->lease_left(seen.number);
    agent.places = seen.places;
    agent.memory_bytes = seen.memory_bytes;
    agent.free_bytes = seen.free_bytes;
    for (std::size_t b = 0; b < seen.backbones.size(); ++b) {
      if (!seen.backbones[b]) continue;
      agent.backbones.push_back({parts.file.backbones[b].name,
                                 backbone_load_name(seen.holds[b].load), seen.holds[b].workers,
                                 std::ssize(seen.adapters[b])});
    }
    for (const GatewayState::Function& function : functions) {
      if (std::ranges::find(function.view.machines, seen.number) == function.view.machines.end()) {
        continue;
      }
      agent.functions.push_back(function.name);
    }
  }
  return agents;
}

http::Response state_response(const GatewayParts& parts, const ApiKey& key) {
  GatewayState state;
  state.state = parts.state();
  state.uptime = parts.uptime();
  state.currency = parts.prices.currency;
  UsageBook::DayCosts costs(parts.book, parts.prices);
  std::vector<std::size_t> visible = visible_functions(parts, key);
  state.functions_total = std::ssize(visible);
  if (visible.size() > kMostFunctions) visible.resize(kMostFunctions);
  std::vector<std::string> names;  // as long as the state borrows them
  names.reserve(visible.size());
  for (const std::size_t i : visible) {
    const FunctionSpec& spec = parts.file.functions[i];
    const std::int32_t number = parts.numbers[i];
    names.push_back(parts.models.full_name(i));
    state.functions.push_back({names.back(), tenant_of(parts.file, i),
                               parts.file.backbones[at(spec.backbone)].name,
                               parts.functions.view(number), costs.of(number)});
  }
  if (key.is_admin) {
    state.machine = machine_of(parts, costs.platform());
    state.machine->agents = agents_of(parts, state.functions);
  }
  http::Response response;
  response.headers = {{"Cache-Control", "no-store"}};
  response.body = gateway_state_json(state);
  return response;
}

Status stop_function(const GatewayParts& parts, const AdminAction& action) {
  for (std::size_t i = 0; i < parts.numbers.size(); ++i) {
    if (tenant_of(parts.file, i) != action.tenant) continue;
    if (parts.models.full_name(i) != action.function) continue;
    return parts.functions.end_idle(parts.numbers[i]);
  }
  return not_found(
      fmt::format("function: the tenant '{}' has no '{}'", action.tenant, action.function));
}

Status move_backbone(const GatewayParts& parts, const AdminAction& action) {
  const auto& all = parts.file.backbones;
  const auto found = std::ranges::find(all, action.backbone, &BackboneSpec::name);
  if (found == all.end() || parts.numbers.empty()) {
    return not_found(fmt::format("backbone: there is no '{}'", action.backbone));
  }
  const auto number = static_cast<std::int32_t>(found - all.begin());
  return action.verb == AdminVerb::kLoad ? parts.functions.load_by_hand(number)
                                         : parts.functions.unload_by_hand(number);
}

Status carry_out(const GatewayParts& parts, const AdminAction& action) {
  switch (action.verb) {
    case AdminVerb::kStop: return stop_function(parts, action);
    case AdminVerb::kLoad:
    case AdminVerb::kUnload: return move_backbone(parts, action);
    case AdminVerb::kReload: return parts.reload();
  }
  return {};
}

http::Response action_response(const GatewayParts& parts, const http::Request& request,
                               const ApiKey& key) {
  if (!key.is_admin) {
    ApiError error;
    error.status = 403;
    error.code = "forbidden";
    error.message = "this needs an admin key ([admin] in the functions file)";
    return error_response(error, {});
  }
  const auto action = parse_admin_action(request.body);
  if (!action) return error_response(action.error(), {});
  if (const Status status = carry_out(parts, *action); !status) {
    ApiError error = to_api_error(status.error());
    if (error.status == 503) {  // in use
      error.status = 409;
      error.type = "invalid_request_error";
    }
    return error_response(error, {});
  }
  log_info("an admin key has changed the gateway: " + request.body);
  http::Response response;
  response.body = R"({"done":true})";
  return response;
}

OwnRoute page_route(std::string path, std::string summary, std::string_view html) {
  OwnRoute route;
  route.method = "GET";
  route.path = std::move(path);
  route.summary = std::move(summary);
  route.needs_key = false;
  route.content_type = "text/html";
  route.handle = [page = page_response(html)](const http::Request&, const ApiKey&,
                                              const OwnRoute::Answer& answer) { answer(page); };
  return route;
}

}  // namespace

std::vector<OwnRoute> admin_routes(const GatewayParts& parts) {
  OwnRoute state;
  state.method = "GET";
  state.path = "/gateway/state";
  state.summary = "Functions, backbones, memory, queues, times and money, now";
  state.handle = [parts](const http::Request&, const ApiKey& key, const OwnRoute::Answer& answer) {
    answer(state_response(parts, key));
  };
  OwnRoute actions;
  actions.method = "POST";
  actions.path = "/gateway/actions";
  actions.summary = "Stop a function, load or unload a backbone, reload; needs an admin key";
  actions.body = admin_action_fields();
  actions.handle = [parts](const http::Request& request, const ApiKey& key,
                           const OwnRoute::Answer& answer) {
    answer(action_response(parts, request, key));
  };
  return {page_route("/", "A page to watch the functions", functions_page_html()),
          page_route("/chat", "A page to chat", page_html()), std::move(state), std::move(actions)};
}

}  // namespace sluice
