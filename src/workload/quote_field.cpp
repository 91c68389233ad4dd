#include "workload/quote_field.h"

#include <fmt/format.h>

namespace sluice {

std::string quote_field(std::string_view text) {
  constexpr std::size_t kMaxBytes = 60;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < 0x20 || byte >= 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out += text.size() > kMaxBytes ? "...\"" : "\"";
}

}  // namespace sluice
