// GPT-2's byte letters: each of the 256 bytes is written as one printable letter, so that any bytes
// can be handled as text. Constant tables; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace sluice {

// The letter (a code point below 0x144) of each byte: printable Latin-1 stands for itself, the
// others follow from U+0100 in order.
constexpr std::array<std::uint16_t, 256> make_byte_letters() {
  std::array<std::uint16_t, 256> letters{};
  std::uint16_t next = 0x100;
  for (std::uint16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    letters[b] = printable ? b : next++;
  }
  return letters;
}
inline constexpr std::array<std::uint16_t, 256> kByteLetters = make_byte_letters();

// The byte of each letter, or -1.
constexpr std::array<std::int16_t, 0x144> make_letter_bytes() {
  std::array<std::int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (std::int16_t b = 0; b < 256; ++b) bytes[kByteLetters[static_cast<std::size_t>(b)]] = b;
  return bytes;
}
inline constexpr std::array<std::int16_t, 0x144> kLetterBytes = make_letter_bytes();

inline void append_byte_letters(std::string_view bytes, std::string& out) {
  for (const char c : bytes) utf8::append(kByteLetters[static_cast<unsigned char>(c)], out);
}

// Appends the bytes of the letters of `text`; appends `text` itself if any of its characters is not
// a byte letter. REQUIRES: valid UTF-8.
inline void append_letter_bytes(std::string_view text, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint c = utf8::decode(text, at);
    if (c.value >= kLetterBytes.size() || kLetterBytes[c.value] < 0) {
      out.resize(before);
      out.append(text);
      return;
    }
    out.push_back(static_cast<char>(kLetterBytes[c.value]));
    at += c.bytes;
  }
}

}  // namespace sluice
