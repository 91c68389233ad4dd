// A hash of bytes for tables whose keys clients choose: SipHash-1-3 with a key that each process
// draws at its first use, so that no client can find keys that collide. The values differ from run
// to run, so nothing that is stored or shown may depend on them.
// Threads: any.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

std::uint64_t keyed_hash(std::string_view bytes);

// The same with a given key, for tests against known values.
struct HashKey {
  std::uint64_t low;
  std::uint64_t high;
};
std::uint64_t keyed_hash(std::string_view bytes, HashKey key);

}  // namespace sluice
