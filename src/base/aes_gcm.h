// AES-256-GCM (NIST SP 800-38D): encryption of bytes with a tag that proves them, and the data
// beside them, unchanged. A nonce must never be used twice with one key: random nonces are safe for
// 2^32 messages of a key. Threads: one object, one thread. OpenSSL stays out of this header.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/hmac.h"

namespace sluice {

using AesKey = HmacKey;  // 32 bytes
using AesNonce = std::array<std::byte, 12>;
using AesTag = std::array<std::byte, 16>;

// A nonce of the system's random bytes.
AesNonce random_nonce();

class AesGcm {
 public:
  AesGcm();
  AesGcm(AesGcm&&) noexcept;
  AesGcm& operator=(AesGcm&&) noexcept;
  ~AesGcm();

  // Encrypts `plain` into `sealed`, which may be the same memory, and returns the tag. `beside` is
  // covered by the tag and not encrypted. REQUIRES: plain.size() == sealed.size().
  AesTag seal(const AesKey& key, const AesNonce& nonce, std::span<const std::byte> beside,
              std::span<const std::byte> plain, std::span<std::byte> sealed);
  // False: not sealed with this key, nonce and `beside`, or changed since; `plain` is then zeros.
  bool open(const AesKey& key, const AesNonce& nonce, std::span<const std::byte> beside,
            std::span<const std::byte> sealed, const AesTag& tag, std::span<std::byte> plain);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace sluice
