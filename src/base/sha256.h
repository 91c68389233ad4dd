// SHA-256, streaming and in one call: digests of weights, adapters, snapshots and cache keys.
// Threads: one object, one thread. OpenSSL stays out of this header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

using Sha256Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // Returns the digest of all bytes since the last finish(), and resets the object.
  Sha256Digest finish();

 private:
  void restart();

  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest sha256(std::string_view text);

// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256Digest& digest);

}  // namespace sluice
