#include "base/json.h"

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

template <typename Json>
std::string dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string dump_json(const nlohmann::json& value, int indent) { return dump(value, indent); }

std::string dump_json(const nlohmann::ordered_json& value, int indent) {
  return dump(value, indent);
}

}  // namespace sluice
