// UTF-8 the way the Unicode standard defines it: decoding of valid text, finding the first invalid
// byte, and lossy decoding (each maximal invalid part becomes U+FFFD). Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::utf8 {

struct CodePoint {
  std::uint32_t value;
  std::uint32_t bytes;  // 1 to 4
};

// The code point at text[at]. REQUIRES: text is valid UTF-8 and at is the start of a character.
inline CodePoint decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// Where the character before text[at] starts. REQUIRES: valid UTF-8, 0 < at <= text.size().
inline std::size_t previous(std::string_view text, std::size_t at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

// The number of characters of valid text; for other text, the number of bytes that are not
// continuation bytes.
inline std::int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Appends the UTF-8 form of a code point (below 0x110000, no surrogate).
void append(std::uint32_t code_point, std::string& out);

// The offset of the first byte that is not part of a valid character; nothing if the text is valid.
std::optional<std::size_t> find_invalid(std::string_view text);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The kind of a text's first bytes: a valid character, an invalid part, or an incomplete character.
enum class Lead { kValid, kInvalid, kIncomplete };
struct Scanned {
  Lead lead;
  std::size_t bytes;  // of the character, or of the maximal invalid part; all when incomplete
};
Scanned scan(std::string_view text);

}  // namespace sluice::utf8
