// JSON as nlohmann's tree, for files, reports and tests. Its parser and its writer are templates
// that every user would compile again, at seconds each, so they are compiled here once.
// Pure functions; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace sluice {

// The document, or a value with is_discarded() when `text` is not JSON.
nlohmann::json parse_json(std::string_view text);
nlohmann::ordered_json parse_ordered_json(std::string_view text);

// Why parse_json() discards `text`, with line and column; empty: it does not.
std::string json_fault(std::string_view text);

// One line without blanks; with `indent`, a line for each value, indented so far by each level.
// Bytes that are not UTF-8 become U+FFFD. Recurses: what a client nested is bounded first
// (base/json_depth.h).
std::string dump_json(const nlohmann::json& value, int indent = -1);
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace sluice
