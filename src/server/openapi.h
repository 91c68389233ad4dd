// The document of GET /openapi.json: the table of routes as OpenAPI 3.1. It has every endpoint with
// its method, its key and its kind of answer, and the fields of its body with their types: those
// that the readers of bodies ask for, refined by openapi_bodies.h.
// Routes of the command's own stand beside the API's, or in their place. Routes that the command
// does not serve are missing.
// Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/own_route.h"

namespace sluice {

// `pins`: whether prefixes can be pinned.
std::string openapi_json(std::string_view version, std::span<const OwnRoute> own = {},
                         bool pins = true);

}  // namespace sluice
