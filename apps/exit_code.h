// Exit codes of the command line. 0 only on success. One thread.
#pragma once

#include "base/result.h"

namespace sluice {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;          // wrong or unbuilt commands, options and values
inline constexpr int kExitInterrupted = 130;  // by SIGINT: 128 + 2, as in shells

// The exit code for an error: kExitUsage if the user can correct it on the command line,
// kExitInterrupted for SIGINT.
int exit_code_for(const Error& error);

// Prints "sluice: message" as one line on stderr; returns `code`.
int report_error(const Error& error, int code);

// The same for an error while the command ran, which the options did not cause: returns
// kExitInterrupted for SIGINT, else kExitError.
int report_failure(const Error& error);

}  // namespace sluice
