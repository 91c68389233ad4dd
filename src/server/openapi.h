// The document of GET /openapi.json: the table of routes as OpenAPI 3.1. It has every endpoint with
// its method, its key and its kind of answer, and the fields of its body with their types: those
// that the readers of bodies ask for. It does not describe the contents of objects and arrays.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

std::string openapi_json(std::string_view version);

}  // namespace sluice
