// Random 32-bit numbers for tests, the same everywhere for the same seed.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace sluice {

class TestRandom {
 public:
  explicit TestRandom(std::uint64_t seed) : generator_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(generator_() >> 32); }

 private:
  SplitMix64 generator_;
};

}  // namespace sluice
