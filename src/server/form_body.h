// Bodies that are HTML forms, which no route of the API takes.
// Pure functions; any thread.
#pragma once

#include <optional>

#include "http/message.h"
#include "server/api_error.h"

namespace sluice {

// Errors: 400 that names the Content-Type of a form. A body that begins as a JSON object is none:
// `curl -d '{...}'` sends it under the Content-Type of a form.
std::optional<ApiError> refuse_form(const http::Request& request);

}  // namespace sluice
