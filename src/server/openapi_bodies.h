// The parts of the bodies' schemas that the readers of bodies cannot record: the contents of
// objects and arrays, and rules between fields. They are written down in openapi/bodies.json:
// "schemas" by name, "fields" by name for all bodies, and "bodies" with fields and rules of one
// body. There
// "@NAME" refers to a schema, and {"at_most_one": [..]} names fields of which one is given at most.
// Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string_view>

namespace sluice {

const nlohmann::ordered_json& openapi_schemas();

// nullptr: nothing is written down. `body` is a name in "bodies".
const nlohmann::ordered_json* openapi_field(std::string_view body, std::string_view field);
const nlohmann::ordered_json* openapi_rules(std::string_view body);

}  // namespace sluice
