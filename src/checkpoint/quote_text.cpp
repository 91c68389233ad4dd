#include "checkpoint/quote_text.h"

#include <fmt/format.h>

namespace sluice {

std::string quote_text(std::string_view text) {
  constexpr std::size_t kMaxBytes = 120;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > kMaxBytes) {
    // A cut inside a multi-byte character would make the message invalid UTF-8.
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0U) == 0x80U) {
      out.pop_back();
    }
    if (!out.empty() && (static_cast<unsigned char>(out.back()) & 0x80U) != 0) out.pop_back();
    out += "...";
  }
  out += '"';
  return out;
}

}  // namespace sluice
