// The hash is compiled into this file: the binary needs no further shared library.
#include "base/content_hash.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>

#include "base/check.h"

namespace sluice {
namespace {

Hash128 from_xxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

}  // namespace

struct ContentHasher::State {
  XXH3_state_t xxh;
};

Hash128 content_hash(std::span<const std::byte> bytes) {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

Hash128 content_hash(std::string_view text) { return content_hash(std::as_bytes(std::span(text))); }

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  CHECK(XXH3_128bits_reset(&state_->xxh) == XXH_OK);
}
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;
ContentHasher::~ContentHasher() = default;

void ContentHasher::update(std::span<const std::byte> bytes) {
  CHECK(XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

void ContentHasher::update_part(std::string_view text) {
  const std::uint64_t size = text.size();
  update(std::as_bytes(std::span(&size, 1)));
  update(std::as_bytes(std::span(text)));
}

Hash128 ContentHasher::digest() const { return from_xxh(XXH3_128bits_digest(&state_->xxh)); }

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace sluice
