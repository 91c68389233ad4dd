// HMAC-SHA256 (RFC 2104), and keys derived from a secret (HKDF-Expand, RFC 5869, one block).
// Threads: one object, one thread. OpenSSL stays out of this header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace sluice {

using HmacKey = std::array<std::byte, 32>;
using HmacTag = std::array<std::byte, 32>;

class Hmac {
 public:
  explicit Hmac(const HmacKey& key);
  Hmac(Hmac&&) noexcept;
  Hmac& operator=(Hmac&&) noexcept;
  ~Hmac();

  void update(std::span<const std::byte> bytes);
  // Returns the tag of all bytes since the last finish(), and begins again with the same key.
  HmacTag finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Takes as long whatever differs. REQUIRES: equal sizes.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

// A key for one purpose, which `label` names.
HmacKey derive_key(const HmacKey& secret, std::string_view label);
// The same with an Hmac of the secret, for many keys: to set one up costs microseconds.
HmacKey derive_key(Hmac& of_secret, std::string_view label);

}  // namespace sluice
