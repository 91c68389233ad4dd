// ApiError: an error in OpenAI's shape, {"error": {"message", "type", "param", "code"}}, with its
// HTTP status. Every refusal of the API is an ApiError.
// Values: plain; any thread.
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "base/result.h"
#include "server/dialect.h"

namespace sluice {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;  // the field at fault, "messages[2].content"; empty = null
  std::string code;   // "model_not_found", "context_length_exceeded", ...; empty = null
  std::optional<int> retry_after_s;  // becomes the header Retry-After
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

// 400 that names the field.
ApiError bad_field(std::string param, std::string message);
// 400 with code "unsupported": a field or value that Sluice knows and does not serve.
ApiError unsupported_field(std::string param, std::string message);
// Maps codes to statuses: kInvalidArgument 400, kContextLength 400 (code
// context_length_exceeded), kNotFound 404, kResourceExhausted 429 (type rate_limit_exceeded),
// kUnavailable 503, kInternal 500, ... `param` may be empty.
ApiError to_api_error(const Error& error, std::string param = {});

// The JSON text {"error": {...}}; Anthropic's is {"type": "error", "error": {"type", "message"}}.
std::string to_json(const ApiError& error, Dialect dialect = Dialect::kOpenAi);

}  // namespace sluice
