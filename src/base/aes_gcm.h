// AES-256-GCM (NIST SP 800-38D): encryption of bytes with a tag that proves them, and the data
// beside them, unchanged. Without encryption it is GMAC, a tag only. A nonce must never be used
// twice with one key: random nonces are safe for 2^32 messages of a key. Threads: one object, one
// thread. OpenSSL stays out of this header.
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

// A nonce of the kernel's random bytes: it differs also in a copied virtual machine, if its
// hypervisor tells the kernel.
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
  // GMAC: copies `from` to `to` and returns the tag of `beside` and `to`, so that the tag is that
  // of the copy even if another process changes `from` meanwhile. For a new tag the nonce
  // must be new; for a check it is the tag's. REQUIRES: from.size() == to.size(), no overlap.
  AesTag copy_with_tag(const AesKey& key, const AesNonce& nonce, std::span<const std::byte> beside,
                       std::span<const std::byte> from, std::span<std::byte> to);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace sluice
