#include "gateway_group/group_message.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/calendar_day.h"
#include "base/json.h"
#include "base/json_depth.h"
#include "gateway/usage_report.h"
#include "server/field_reader.h"
#include "server/request_json.h"

namespace sluice {
namespace {

constexpr int kMaxDepth = 4;
constexpr std::size_t kMaxText = 256;

void read_text(FieldReader& reader, std::string_view name, std::string& out) {
  const std::string* text = reader.string(name, kMaxText);
  if (text == nullptr) return reader.missing(name, "a text");
  out = *text;
}

void read_count(FieldReader& reader, std::string_view name, std::int64_t& out) {
  const auto value = reader.integer(name, 0, INT64_MAX);
  if (!value) return reader.missing(name, "0 or more");
  out = *value;
}

void read_tenants(FieldReader& reader, GatewayUse& use) {
  const JsonValue::Array* list = reader.array("tenants");
  if (list == nullptr) return reader.missing("tenants", "a list");
  for (std::size_t i = 0; i < list->size() && !reader.failed(); ++i) {
    const auto* object = (*list)[i].object();
    if (object == nullptr) return reader.bad("tenants", "must have objects only");
    FieldReader item(*object, fmt::format("tenants[{}].", i), nullptr);
    std::string name;
    TenantUse one;
    read_text(item, "name", name);
    read_count(item, "requests", one.requests);
    read_count(item, "tokens", one.tokens);
    read_count(item, "calls", one.calls);
    read_count(item, "micro_units", one.micro_units);
    read_count(item, "micro_units_before", one.micro_units_before);
    item.check_unknown();
    if (item.failed()) return reader.fail(*item.error());
    if (!use.tenants.emplace(std::move(name), one).second) {
      return reader.bad("tenants", "has a tenant twice");
    }
  }
}

}  // namespace

std::string group_use_json(const GatewayUse& use) {
  nlohmann::ordered_json tenants = nlohmann::ordered_json::array();
  for (const auto& [name, one] : use.tenants) {
    tenants.push_back({{"name", name},
                       {"requests", one.requests},
                       {"tokens", one.tokens},
                       {"calls", one.calls},
                       {"micro_units", one.micro_units},
                       {"micro_units_before", one.micro_units_before}});
  }
  return dump_json(nlohmann::ordered_json{
      {"process", use.process}, {"day", use.day}, {"tenants", std::move(tenants)}});
}

Result<GatewayUse> parse_group_use(std::string_view text) {
  if (text.size() > kMaxGroupUse) return invalid_argument("the text is longer than 1 MiB");
  if (json_deeper_than(text, kMaxDepth)) return invalid_argument("the text is nested too deeply");
  const auto object = parse_request_json(std::string(text));
  if (!object) return invalid_argument(object.error().message);
  FieldReader reader(*object, "", nullptr);
  GatewayUse use;
  read_text(reader, "process", use.process);
  read_text(reader, "day", use.day);
  if (!reader.failed() && !parse_day(use.day)) reader.bad("day", "must be like 2026-11-25");
  read_tenants(reader, use);
  reader.check_unknown();
  if (reader.failed()) return invalid_argument(reader.error()->message);
  return use;
}

}  // namespace sluice
