#include "base/utf8.h"

#include <simdjson.h>

namespace sluice::utf8 {

void append(std::uint32_t code_point, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

Scanned scan(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Lead::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Lead::kInvalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values past U+10FFFF.
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Lead::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Lead::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Lead::kValid, length};
}

std::optional<std::size_t> find_invalid(std::string_view text) {
  if (simdjson::validate_utf8(text)) return std::nullopt;
  for (std::size_t at = 0; at < text.size();) {
    const Scanned next = scan(text.substr(at));
    if (next.lead != Lead::kValid) return at;
    at += next.bytes;
  }
  return std::nullopt;
}

}  // namespace sluice::utf8
