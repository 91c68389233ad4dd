#include "agents/agent_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/json_depth.h"
#include "server/field_reader.h"
#include "server/request_json.h"

namespace sluice {
namespace {

using AgentJson = nlohmann::ordered_json;

constexpr int kMaxDepth = 6;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxInstances = 1 << 16;
constexpr std::int64_t kMaxTookUs = std::int64_t{86'400} * 1'000'000;

constexpr std::array<std::pair<AgentFault, std::pair<std::string_view, int>>, 10> kFaults = {
    {{AgentFault::kNone, {"none", 200}},
     {AgentFault::kBadRequest, {"bad_request", 400}},
     {AgentFault::kWrongToken, {"wrong_token", 401}},
     {AgentFault::kUnknownPath, {"unknown_path", 404}},
     {AgentFault::kUnknownAgent, {"unknown_agent", 404}},
     {AgentFault::kUnknownName, {"unknown_name", 404}},
     {AgentFault::kStaleEpoch, {"stale_epoch", 409}},
     {AgentFault::kRepeated, {"repeated", 409}},
     {AgentFault::kTooManyAgents, {"too_many_agents", 429}},
     {AgentFault::kNotReady, {"not_ready", 503}}}};

constexpr std::array<std::string_view, 3> kLoadNames = {"absent", "loading", "loaded"};

void read_load(FieldReader& reader, std::string_view name, BackboneLoad& out) {
  const std::string* text = reader.string(name, kMaxText);
  const auto* found = text == nullptr ? kLoadNames.end() : std::ranges::find(kLoadNames, *text);
  if (found == kLoadNames.end()) return reader.missing(name, "absent, loading or loaded");
  out = static_cast<BackboneLoad>(found - kLoadNames.begin());
}

Error first_error(const FieldReader& reader) { return invalid_argument(reader.error()->message); }

void read_text(FieldReader& reader, std::string_view name, std::string& out) {
  const std::string* text = reader.string(name, kMaxText);
  if (text == nullptr) return reader.missing(name, "a text");
  out = *text;
}

void read_texts(FieldReader& reader, std::string_view name, std::size_t most,
                std::vector<std::string>& out) {
  const JsonValue::Array* list = reader.array(name);
  const auto is_text = [](const JsonValue& item) {
    return item.string() != nullptr && item.string()->size() <= kMaxText;
  };
  if (list == nullptr || list->size() > most || !std::ranges::all_of(*list, is_text)) {
    return reader.missing(name, fmt::format("a list of at most {} texts", most));
  }
  for (const JsonValue& item : *list) out.push_back(*item.string());
}

template <class T>
void read_integer(FieldReader& reader, std::string_view name, std::int64_t least, std::int64_t most,
                  T& out) {
  const auto value = reader.integer(name, least, most);
  if (!value) return reader.missing(name, fmt::format("{} to {}", least, most));
  out = static_cast<T>(*value);
}

// Each item of a list of objects goes to `read`.
template <class Read>
void read_list(FieldReader& reader, std::string_view name, std::size_t most, const Read& read) {
  const JsonValue::Array* list = reader.array(name);
  if (list == nullptr) return reader.missing(name, "a list");
  if (list->size() > most) return reader.bad(name, fmt::format("has more than {} items", most));
  for (std::size_t i = 0; i < list->size() && !reader.failed(); ++i) {
    const auto* object = (*list)[i].object();
    if (object == nullptr) return reader.bad(name, "must have objects only");
    FieldReader item(*object, fmt::format("{}[{}].", name, i), nullptr);
    read(item);
    item.check_unknown();
    if (item.failed()) reader.fail(*item.error());
  }
}

template <class T, class Read>
Result<T> parse(std::string_view body, const Read& read) {
  if (json_deeper_than(body, kMaxDepth)) return invalid_argument("the body is nested too deeply");
  const auto object = parse_request_json(std::string(body));
  if (!object) return invalid_argument(object.error().message);
  FieldReader reader(*object, "", nullptr);
  T message;
  read(reader, message);
  reader.check_unknown();
  if (reader.failed()) return first_error(reader);
  return message;
}

template <class T>
void read_member(FieldReader& reader, T& message) {
  read_text(reader, "agent", message.agent);
  read_integer(reader, "epoch", 1, INT64_MAX, message.epoch);
}

}  // namespace

std::string_view agent_fault_name(AgentFault fault) {
  return std::ranges::find(kFaults, fault, [](const auto& one) { return one.first; })->second.first;
}

int agent_fault_status(AgentFault fault) {
  return std::ranges::find(kFaults, fault, [](const auto& one) { return one.first; })
      ->second.second;
}

std::string_view backbone_load_name(BackboneLoad load) {
  return kLoadNames[static_cast<std::size_t>(load)];
}

AgentAnswer agent_fault(AgentFault fault, std::string message) {
  AgentAnswer answer;
  answer.fault = fault;
  answer.message = std::move(message);
  return answer;
}

Result<AgentJoin> parse_agent_join(std::string_view body) {
  return parse<AgentJoin>(body, [](FieldReader& reader, AgentJoin& join) {
    read_text(reader, "agent", join.agent);
    read_text(reader, "key", join.key);
    read_texts(reader, "earlier_joins", kMaxEarlierJoins, join.earlier_joins);
    read_integer(reader, "cores", 1, kMaxAgentCores, join.cores);
    read_integer(reader, "turn_cores", 1, kMaxAgentCores, join.turn_cores);
    read_integer(reader, "memory_bytes", 1, kMaxAgentBytes, join.memory_bytes);
    read_integer(reader, "max_functions", 1, kMaxAgentFunctions, join.max_functions);
    read_list(reader, "backbones", kMaxAgentBackbones, [&](FieldReader& item) {
      AgentBackbone& backbone = join.backbones.emplace_back();
      read_text(item, "name", backbone.name);
      read_text(item, "digest", backbone.digest);
    });
  });
}

Result<AgentReport> parse_agent_report(std::string_view body) {
  return parse<AgentReport>(body, [](FieldReader& reader, AgentReport& report) {
    read_member(reader, report);
    read_integer(reader, "sequence", 1, INT64_MAX, report.sequence);
    read_integer(reader, "free_bytes", 0, kMaxAgentBytes, report.free_bytes);
    if (const auto draining = reader.boolean("draining")) report.draining = *draining;
    read_list(reader, "backbones", kMaxAgentBackbones, [&](FieldReader& item) {
      AgentHolding& holding = report.backbones.emplace_back();
      read_text(item, "name", holding.name);
      read_load(item, "state", holding.load);
      read_integer(item, "workers", 0, kMaxAgentFunctions, holding.workers);
      read_integer(item, "worker_bytes", 0, kMaxAgentBytes, holding.worker_bytes);
    });
    read_list(reader, "adapters", kMaxAgentAdapters, [&](FieldReader& item) {
      AgentAdapter& adapter = report.adapters.emplace_back();
      read_text(item, "backbone", adapter.backbone);
      read_text(item, "digest", adapter.digest);
      std::int64_t took = 0;
      read_integer(item, "took_us", 0, kMaxTookUs, took);
      adapter.took = std::chrono::microseconds(took);
    });
    read_list(reader, "instances", kMaxInstances, [&](FieldReader& item) {
      AgentInstance& instance = report.instances.emplace_back();
      read_integer(item, "id", 1, INT64_MAX, instance.id);
      read_integer(item, "own_bytes", 0, kMaxAgentBytes, instance.own_bytes);
    });
  });
}

Result<AgentCall> parse_agent_call(std::string_view body) {
  return parse<AgentCall>(body,
                          [](FieldReader& reader, AgentCall& call) { read_member(reader, call); });
}

std::string agent_json(const AgentJoin& join) {
  AgentJson backbones = AgentJson::array();
  for (const AgentBackbone& one : join.backbones) {
    backbones.push_back({{"name", one.name}, {"digest", one.digest}});
  }
  return dump_json(AgentJson{{"agent", join.agent},
                             {"key", join.key},
                             {"earlier_joins", join.earlier_joins},
                             {"cores", join.cores},
                             {"turn_cores", join.turn_cores},
                             {"memory_bytes", join.memory_bytes},
                             {"max_functions", join.max_functions},
                             {"backbones", backbones}});
}

std::string agent_json(const AgentReport& report) {
  AgentJson instances = AgentJson::array();
  for (const AgentInstance& one : report.instances) {
    instances.push_back({{"id", one.id}, {"own_bytes", one.own_bytes}});
  }
  AgentJson backbones = AgentJson::array();
  for (const AgentHolding& one : report.backbones) {
    backbones.push_back({{"name", one.name},
                         {"state", backbone_load_name(one.load)},
                         {"workers", one.workers},
                         {"worker_bytes", one.worker_bytes}});
  }
  AgentJson adapters = AgentJson::array();
  for (const AgentAdapter& one : report.adapters) {
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(one.took).count();
    adapters.push_back({{"backbone", one.backbone},
                        {"digest", one.digest},
                        {"took_us", std::clamp<std::int64_t>(took, 0, kMaxTookUs)}});
  }
  return dump_json(AgentJson{{"agent", report.agent},
                             {"epoch", report.epoch},
                             {"sequence", report.sequence},
                             {"free_bytes", report.free_bytes},
                             {"draining", report.draining},
                             {"backbones", backbones},
                             {"adapters", adapters},
                             {"instances", instances}});
}

std::string agent_json(const AgentCall& call) {
  return dump_json(AgentJson{{"agent", call.agent}, {"epoch", call.epoch}});
}

std::string agent_answer_json(const AgentAnswer& answer) {
  if (answer.fault != AgentFault::kNone) {
    return dump_json(AgentJson{
        {"error", {{"code", agent_fault_name(answer.fault)}, {"message", answer.message}}}});
  }
  const auto expiry = std::chrono::duration_cast<std::chrono::milliseconds>(answer.expiry).count();
  return dump_json(AgentJson{{"epoch", answer.epoch}, {"expiry_ms", expiry}});
}

Result<AgentAnswer> parse_agent_answer(std::string_view body) {
  const Error no_answer = invalid_argument("the answer is not that of a gateway for agents");
  if (json_deeper_than(body, kMaxDepth)) return no_answer;
  const nlohmann::json root = parse_json(body);
  if (!root.is_object()) return no_answer;
  AgentAnswer answer;
  if (const auto error = root.find("error"); error != root.end()) {
    if (!error->is_object() || !error->value("code", nlohmann::json()).is_string()) {
      return no_answer;
    }
    const auto code = (*error)["code"].get<std::string>();
    for (const auto& [fault, facts] : kFaults) {
      if (facts.first == code) answer.fault = fault;
    }
    if (answer.fault == AgentFault::kNone) return no_answer;
    const nlohmann::json message = error->value("message", nlohmann::json());
    if (message.is_string()) answer.message = message.get<std::string>();
    return answer;
  }
  const nlohmann::json epoch = root.value("epoch", nlohmann::json());
  const nlohmann::json expiry = root.value("expiry_ms", nlohmann::json());
  if (!epoch.is_number_unsigned() || !expiry.is_number_unsigned()) return no_answer;
  answer.epoch = epoch.get<std::uint64_t>();
  answer.expiry =
      std::chrono::milliseconds(std::min<std::uint64_t>(expiry.get<std::uint64_t>(), 86'400'000));
  return answer;
}

std::string gateway_backbones_json(const std::vector<GatewayBackbone>& backbones) {
  AgentJson list = AgentJson::array();
  for (const GatewayBackbone& one : backbones) {
    list.push_back({{"name", one.name},
                    {"directory", one.directory},
                    {"digest", one.digest},
                    {"block_size", one.block_size}});
  }
  return dump_json(AgentJson{{"backbones", list}});
}

Result<std::vector<GatewayBackbone>> parse_gateway_backbones(std::string_view body) {
  using List = std::vector<GatewayBackbone>;
  return parse<List>(body, [](FieldReader& reader, List& list) {
    read_list(reader, "backbones", kMaxAgentBackbones, [&](FieldReader& item) {
      GatewayBackbone& backbone = list.emplace_back();
      read_text(item, "name", backbone.name);
      read_text(item, "directory", backbone.directory);
      read_text(item, "digest", backbone.digest);
      read_integer(item, "block_size", 1, 1 << 20, backbone.block_size);
    });
  });
}

}  // namespace sluice
