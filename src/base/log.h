// Logging to stderr: one line a message, levels info to error. stdout is for results only.
// Threads: any. Never called from inside a step of the engine in steady state.
// The formatting library stays out of this header; callers format with fmt::format or pass text.
#pragma once

#include <string_view>

namespace sluice {

enum class LogLevel { kInfo, kWarning, kError };

// Messages below `level` are dropped. Default: kInfo, or SLUICE_LOG=info|warning|error.
void set_log_level(LogLevel level);

void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace sluice
