// The random streams of the parts of a workload: a user gives one seed, but arrivals and lengths
// must not be drawn from the same stream. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace sluice {

enum class WorkloadPart : std::uint64_t { kArrivals = 1, kLengths = 2, kOrder = 3 };

constexpr SplitMix64 workload_random(std::uint64_t seed, WorkloadPart part) {
  // Two rounds: streams of neighbouring seeds start far apart.
  SplitMix64 first(seed);
  SplitMix64 second(first() ^ (static_cast<std::uint64_t>(part) << 56));
  return SplitMix64(second());
}

// Uniform in (0, 1]: may be given to a logarithm.
constexpr double uniform_above_zero(SplitMix64& random) { return 1.0 - random.uniform(); }

}  // namespace sluice
