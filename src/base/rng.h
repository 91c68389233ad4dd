// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11): a pure function of key and
// counter, so a draw depends on its key and counter and never on earlier draws. Sampling
// uses key = (seed, choice), counter = token index. SplitMix64 seeds tests and generators.
// Values: plain; any thread.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// The Philox4x32-10 block for a 64-bit key and a 128-bit counter.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ULL * counter[0];
    const std::uint64_t b = 0xCD9E8D57ULL * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits, for token `index` of choice `choice` of a request with `seed`.
constexpr double sampling_uniform(std::uint64_t seed, std::uint32_t choice, std::uint64_t index) {
  const auto bits =
      philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  choice, 0x534C5543U},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t word = (std::uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

// A small sequential generator (SplitMix64) for tests, fuzz drivers and synthetic workloads.
class SplitMix64 {
 public:
  using result_type = std::uint64_t;
  explicit constexpr SplitMix64(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound); bound > 0. The bias of the multiply-shift is below 2^-32 for small
  // bounds.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>(
        ((__extension__ static_cast<unsigned __int128>((*this)())) * bound) >> 64);
  }
  constexpr double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~std::uint64_t{0}; }

 private:
  std::uint64_t state_;
};

}  // namespace sluice
