#include "base/keyed_hash.h"

#include <sys/random.h>

#include <bit>
#include <cstring>

#include "base/check.h"

namespace sluice {
namespace {

HashKey draw_key() {
  HashKey key{};
  CHECK(getrandom(&key, sizeof key, 0) == sizeof key);
  return key;
}

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t keyed_hash(std::string_view bytes, HashKey key) {
  SipState state{key.low ^ 0x736F6D6570736575, key.high ^ 0x646F72616E646F6D,
                 key.low ^ 0x6C7967656E657261, key.high ^ 0x7465646279746573};
  const std::uint64_t length = bytes.size();
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    state.absorb(word);
  }
  std::uint64_t last = length << 56;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    last |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  state.absorb(last);
  state.v2 ^= 0xFF;
  for (int i = 0; i < 3; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

std::uint64_t keyed_hash(std::string_view bytes) {
  static const HashKey key = draw_key();
  return keyed_hash(bytes, key);
}

}  // namespace sluice
