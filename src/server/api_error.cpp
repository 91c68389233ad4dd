#include "server/api_error.h"

#include <utility>

#include "server/json_writer.h"

namespace sluice {
namespace {

// Seconds after which a client should retry a full server.
constexpr int kRetryAfterSeconds = 1;

std::string type_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kContextLength:
    case ErrorCode::kUnsupported: return "invalid_request_error";
    case ErrorCode::kResourceExhausted: return "rate_limit_exceeded";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal:
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded: return "server_error";
  }
  return "server_error";
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string anthropic_error(const ApiError& error) {
  std::string out = R"({"type":"error","error":{"type":")";
  out += anthropic_type(error.status);
  out += R"(","message":)";
  append_json_string(error.message, out);
  return out + "}}";
}

void append_or_null(const std::string& text, std::string& out) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(text, out);
  }
}

}  // namespace

ApiError bad_field(std::string param, std::string message) {
  ApiError error;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

ApiError unsupported_field(std::string param, std::string message) {
  ApiError error = bad_field(std::move(param), std::move(message));
  error.code = "unsupported";
  return error;
}

ApiError to_api_error(const Error& error, std::string param) {
  ApiError result;
  result.status = http_status(error.code);
  result.type = type_of(error.code);
  result.message = error.message;
  result.param = std::move(param);
  if (error.code != ErrorCode::kInvalidArgument) result.code = error_code_name(error.code);
  if (error.code == ErrorCode::kResourceExhausted) result.retry_after_s = kRetryAfterSeconds;
  return result;
}

std::string to_json(const ApiError& error, Dialect dialect) {
  if (dialect == Dialect::kMessages) return anthropic_error(error);
  std::string out = R"({"error":{"message":)";
  append_json_string(error.message, out);
  out += R"(,"type":)";
  append_json_string(error.type, out);
  out += R"(,"param":)";
  append_or_null(error.param, out);
  out += R"(,"code":)";
  append_or_null(error.code, out);
  out += "}}";
  return out;
}

}  // namespace sluice
