// Ed25519 signatures (RFC 8032). A public key is written as openssl writes it: base64 of its
// SubjectPublicKeyInfo (RFC 8410), the line between BEGIN and END of `openssl pkey -pubout`.
// Pure functions; any thread. OpenSSL stays out of this header.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

using Ed25519PublicKey = std::array<std::uint8_t, 32>;
using Ed25519Signature = std::array<std::uint8_t, 64>;

// Absent: not base64, or not an Ed25519 public key.
std::optional<Ed25519PublicKey> parse_ed25519_public_key(std::string_view base64);
std::string ed25519_public_key_text(const Ed25519PublicKey& key);

struct Ed25519Signed {
  Ed25519Signature signature{};
  Ed25519PublicKey key{};  // of the private key that signed
};

// `private_key`: PEM text, as `openssl genpkey -algorithm ed25519` writes it, without a passphrase.
// kInvalidArgument if it is not.
Result<Ed25519Signed> sign_ed25519(std::string_view private_key, std::string_view message);

bool verify_ed25519(const Ed25519PublicKey& key, std::string_view message,
                    const Ed25519Signature& signature);

}  // namespace sluice
