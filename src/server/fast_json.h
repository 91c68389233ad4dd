// The fast reader of valid JSON, some ten times faster than the parser that explains errors. Bodies
// of requests are large when prompts are, and nearly all of them are valid.
// Values: plain; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/request_json.h"

namespace sluice {

// Reads `text`, an object, with simdjson. nullopt: the text is not valid JSON, is no object, or has
// a number that no double holds; parse_request_json() then asks the other parser why. Both parsers
// give an equal result for what this one accepts (a fuzz target compares them).
// REQUIRES: valid UTF-8, at most kMaxBodyDepth levels.
std::optional<JsonValue> read_json_fast(std::string_view text);

}  // namespace sluice
