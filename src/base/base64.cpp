#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>

namespace sluice {

std::string to_base64(std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = std::size_t{3} << 28;  // OpenSSL counts in int
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  std::size_t length = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    length += static_cast<std::size_t>(EVP_EncodeBlock(
        reinterpret_cast<unsigned char*>(text.data() + length),
        reinterpret_cast<const unsigned char*>(piece.data()), static_cast<int>(piece.size())));
  }
  text.resize(length);
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  const auto value_of = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  for (std::size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const int padding = !last || text[at + 3] != '=' ? 0 : text[at + 2] != '=' ? 1 : 2;
    std::uint32_t bits = 0;
    for (int i = 0; i < 4 - padding; ++i) {
      const int value = value_of(text[at + static_cast<std::size_t>(i)]);
      if (value < 0) return std::nullopt;
      bits |= static_cast<std::uint32_t>(value) << (18 - 6 * i);
    }
    if ((bits & ((1U << (8 * padding)) - 1)) != 0) return std::nullopt;
    for (int i = 0; i < 3 - padding; ++i) {
      bytes.push_back(static_cast<char>(static_cast<unsigned char>(bits >> (16 - 8 * i))));
    }
  }
  return bytes;
}

}  // namespace sluice
