// Result<T>: a value or an Error, for everything whose failure has a cause outside the program.
// Errors name the file or field and say what value or action is expected. Each code has one HTTP
// status. Values: plain, copyable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace sluice {

enum class ErrorCode {
  kInvalidArgument,    // 400
  kNotFound,           // 404
  kResourceExhausted,  // 429
  kCancelled,          // 499
  kInternal,           // 500
  kUnsupported,        // 501
  kUnavailable,        // 503
  kDeadlineExceeded,   // 504
  kContextLength,      // 400: the request can never run, because it is too long
};

// "invalid_argument" and so on; stable, for logs and JSON.
std::string_view error_code_name(ErrorCode code);

// The HTTP status of a code, e.g. 400 for kInvalidArgument.
int http_status(ErrorCode code);

struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

inline Error invalid_argument(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}
inline Error context_length_exceeded(std::string message) {
  return {ErrorCode::kContextLength, std::move(message)};
}
inline Error not_found(std::string message) { return {ErrorCode::kNotFound, std::move(message)}; }
inline Error resource_exhausted(std::string message) {
  return {ErrorCode::kResourceExhausted, std::move(message)};
}
inline Error unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message)};
}
inline Error unavailable(std::string message) {
  return {ErrorCode::kUnavailable, std::move(message)};
}
inline Error internal_error(std::string message) {
  return {ErrorCode::kInternal, std::move(message)};
}

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT: implicit on purpose
  Result(Base base) : Base(std::move(base)) {}                   // NOLINT: implicit on purpose
};

using Status = Result<void>;

// The same error with "context: " before its message, for callers that know the file or field.
inline Error with_context(std::string_view context, Error error) {
  error.message.insert(0, std::string(context) + ": ");
  return error;
}

}  // namespace sluice

// Returns the error of a Result expression from the enclosing function.
#define RETURN_IF_ERROR(expression)                            \
  do {                                                         \
    if (auto sluice_status_ = (expression); !sluice_status_) { \
      return std::move(sluice_status_).error();                \
    }                                                          \
  } while (false)

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(auto value, expression): the value, or the error returned from here.
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_IMPL(SLUICE_CONCAT(sluice_result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                  \
  if (!result) return std::move(result).error();               \
  declaration = *std::move(result)
