#include "base/log.h"

#include "base/utf8.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdint>
#include <cstdlib>

namespace sluice {
namespace {

spdlog::level::level_enum level_from_environment() {
  const char* name = std::getenv("SLUICE_LOG");
  return name == nullptr ? spdlog::level::info : spdlog::level::from_str(name);
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("sluice");
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    made->set_level(level_from_environment());
    return made;
  }();
  return *instance;
}

// C0, DEL and C1.
bool is_control(std::string_view character) {
  const std::uint32_t code = utf8::decode(character, 0).value;
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

}  // namespace

void set_log_level(LogLevel level) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

std::string log_line(std::string_view message) {
  const std::size_t cut = message.size() > kMaxLogBytes ? message.size() - kMaxLogBytes : 0;
  message.remove_suffix(cut);
  std::string line;
  line.reserve(message.size());
  while (!message.empty()) {
    const utf8::Scanned next = utf8::scan(message);
    const std::string_view bytes = message.substr(0, next.bytes);
    message.remove_prefix(next.bytes);
    if (next.lead == utf8::Lead::kValid && !is_control(bytes)) {
      line += bytes;
      continue;
    }
    for (const char byte : bytes) line += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(byte));
  }
  if (cut > 0) line += fmt::format(" (and {} bytes)", cut);
  return line;
}

void log_info(std::string_view message) { logger().info("{}", log_line(message)); }
void log_warning(std::string_view message) { logger().warn("{}", log_line(message)); }
void log_error(std::string_view message) { logger().error("{}", log_line(message)); }

}  // namespace sluice
