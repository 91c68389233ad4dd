#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>

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

}  // namespace sluice
