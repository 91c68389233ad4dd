#include "server/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/utf8.h"

namespace sluice {
namespace {

bool needs_care(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte >= 0x80 || c == '"' || c == '\\';
}

void append_escaped(char c, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  const auto byte = static_cast<unsigned char>(c);
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 0xF];
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  std::size_t plain = 0;  // text[plain, i) can go out as it is
  std::size_t i = 0;
  while (i < text.size()) {
    if (!needs_care(text[i])) {
      ++i;
      continue;
    }
    const bool ascii = static_cast<unsigned char>(text[i]) < 0x80;
    const utf8::Scanned scanned =
        ascii ? utf8::Scanned{utf8::Lead::kValid, 1} : utf8::scan(text.substr(i));
    if (!ascii && scanned.lead == utf8::Lead::kValid) {
      i += scanned.bytes;
      continue;
    }
    out.append(text, plain, i - plain);
    if (ascii) {
      append_escaped(text[i], out);
    } else {
      out += utf8::kReplacement;
    }
    i += scanned.bytes;
    plain = i;
  }
  out.append(text, plain, text.size() - plain);
  out += '"';
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

void append_json_integer(std::int64_t value, std::string& out) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void append_json_float(float value, std::string& out) {
  CHECK(std::isfinite(value));
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace sluice
