#include "server/openapi_bodies.h"

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

#include "base/json.h"

namespace sluice {

// Made from openapi/bodies.json by the build.
extern const std::string_view kOpenApiBodies;

namespace {

using nlohmann::ordered_json;

ordered_json reference(const std::string& name) {
  ordered_json schema;
  schema["$ref"] = "#/components/schemas/" + name;
  return schema;
}

ordered_json at_most_one(const ordered_json& names) {
  ordered_json rule;
  for (const ordered_json& kept : names) {
    ordered_json others = ordered_json::object();
    for (const ordered_json& name : names) {
      if (name != kept) others[name.get<std::string>()]["type"] = "null";
    }
    rule["anyOf"].push_back({{"properties", std::move(others)}});
  }
  return rule;
}

// The file's short forms, written out.
ordered_json expanded(const ordered_json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return text.starts_with('@') ? reference(text.substr(1)) : value;
  }
  if (!value.is_structured()) return value;
  if (value.is_object() && value.contains("at_most_one")) return at_most_one(value["at_most_one"]);
  ordered_json out = value;
  for (ordered_json& member : out) member = expanded(member);
  return out;
}

const ordered_json& written() {
  static const ordered_json bodies = expanded(parse_ordered_json(kOpenApiBodies));
  return bodies;
}

const ordered_json* find(const ordered_json& object, std::string_view name) {
  const auto found = object.find(std::string(name));
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

const ordered_json& openapi_schemas() { return written()["schemas"]; }

const ordered_json* openapi_field(std::string_view body, std::string_view field) {
  const ordered_json* own = find(written()["bodies"], body);
  const ordered_json* fields = own == nullptr ? nullptr : find(*own, "fields");
  const ordered_json* schema = fields == nullptr ? nullptr : find(*fields, field);
  return schema != nullptr ? schema : find(written()["fields"], field);
}

const ordered_json* openapi_rules(std::string_view body) {
  const ordered_json* own = find(written()["bodies"], body);
  return own == nullptr ? nullptr : find(*own, "rules");
}

}  // namespace sluice
