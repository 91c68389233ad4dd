// Logging to stderr: one line a message, levels info to error. stdout is for results only.
// Threads: any. Never called from inside a step of the engine in steady state.
// The formatting library stays out of this header; callers format with fmt::format or pass text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::size_t kMaxLogBytes = 8192;  // of a message; the rest is cut off

enum class LogLevel { kInfo, kWarning, kError };

// Messages below `level` are dropped. Default: kInfo, or SLUICE_LOG=info|warning|error.
void set_log_level(LogLevel level);

// A message as it is logged. Parts of it may come from a client or a hostile process, so control
// characters and bytes that are not UTF-8 stand as \xNN: no text forges a line, or acts on a
// terminal.
std::string log_line(std::string_view message);

void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace sluice
