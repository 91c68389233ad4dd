// Hash128: a 128-bit digest that names blocks of the prefix cache, models and adapters.
// Values: plain, trivially copyable; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sluice {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend constexpr auto operator<=>(const Hash128&, const Hash128&) = default;
};

}  // namespace sluice

// Digests are uniformly distributed, so any 64 of their bits are a good table hash.
template <>
struct std::hash<sluice::Hash128> {
  std::size_t operator()(const sluice::Hash128& h) const noexcept { return h.low; }
};
