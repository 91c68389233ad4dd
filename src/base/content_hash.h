// Content hashes: 128 bits that tell damaged and changed bytes at the speed of memory (XXH3). They
// do not protect against forgery; sha256.h does.
// Threads: functions any; one hasher, one thread. The library's header stays out of this one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/hash128.h"

namespace sluice {

Hash128 content_hash(std::span<const std::byte> bytes);
Hash128 content_hash(std::string_view text);

// The same hash over bytes that come in pieces.
class ContentHasher {
 public:
  ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;
  ~ContentHasher();

  void update(std::span<const std::byte> bytes);
  // The text behind its length, so that no two lists of parts give the same bytes.
  void update_part(std::string_view text);
  // The hash of all bytes so far; more may follow.
  Hash128 digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 32 lower-case hexadecimal digits.
std::string to_hex(const Hash128& hash);

}  // namespace sluice
