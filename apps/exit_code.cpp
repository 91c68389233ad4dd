#include "apps/exit_code.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace sluice {

int exit_code_for(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextLength:
    case ErrorCode::kUnsupported: return kExitUsage;
    case ErrorCode::kCancelled: return kExitInterrupted;
    default: return kExitError;
  }
}

int report_error(const Error& error, int code) {
  std::string line = error.message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fprintf(stderr, "sluice: %s\n", line.c_str());
  return code;
}

int report_failure(const Error& error) {
  const bool stopped = error.code == ErrorCode::kCancelled;
  return report_error(error, stopped ? kExitInterrupted : kExitError);
}

}  // namespace sluice
