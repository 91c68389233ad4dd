#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace sluice {

// OpenSSL's calls fail only when memory runs out or when OpenSSL was built without SHA-256. No
// caller can handle either, so failures are CHECKed and not returned.
struct Sha256::Context {
  Context() : evp(EVP_MD_CTX_new()) { CHECK(evp != nullptr); }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  EVP_MD_CTX* evp;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) { restart(); }
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::restart() { CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1); }

void Sha256::update(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  unsigned length = 0;
  CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), &length) == 1);
  CHECK(length == digest.size());
  restart();
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Sha256Digest sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

std::string to_hex(const Sha256Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.size());
  for (const std::uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace sluice
