#include "base/result.h"

#include "base/check.h"

namespace sluice {
namespace {

struct CodeInfo {
  std::string_view name;
  int status;
};

CodeInfo info(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return {"invalid_argument", 400};
    case ErrorCode::kNotFound: return {"not_found", 404};
    case ErrorCode::kResourceExhausted: return {"resource_exhausted", 429};
    case ErrorCode::kCancelled: return {"cancelled", 499};
    case ErrorCode::kInternal: return {"internal", 500};
    case ErrorCode::kUnsupported: return {"unsupported", 501};
    case ErrorCode::kUnavailable: return {"unavailable", 503};
    case ErrorCode::kDeadlineExceeded: return {"deadline_exceeded", 504};
    case ErrorCode::kContextLength: return {"context_length_exceeded", 400};
  }
  check_failed(__FILE__, __LINE__, "unknown ErrorCode");
}

}  // namespace

std::string_view error_code_name(ErrorCode code) { return info(code).name; }
int http_status(ErrorCode code) { return info(code).status; }

}  // namespace sluice
