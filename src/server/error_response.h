// An ApiError as an HTTP response: JSON body, status, Retry-After, the request's id.
// Threads: any.
#pragma once

#include <string_view>

#include "http/message.h"
#include "server/api_error.h"

namespace sluice {

// `request_id` empty: no header for it.
http::Response error_response(const ApiError& error, std::string_view request_id,
                              Dialect dialect = Dialect::kOpenAi);

}  // namespace sluice
