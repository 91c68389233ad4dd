// Artifacts (backbones, adapters, ...) can be loaded before a request needs them. This is the data
// of the policies of pre-loading and offloading. A placement is one artifact in one memory. A
// placement saves a request the delay of making it, once per request and artifact: a second copy
// saves nothing more, and a copy in a better memory saves the difference.
//
// Placements that need others (an adapter needs its backbone in the same memory) list them in
// `needs`, and stand behind them in the list. Ids are positions in the lists.
// Plain data; bytes, seconds.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace sluice {

enum class Residency : std::uint8_t {
  kAbsent,
  kIdle,   // loaded, and no request uses it
  kInUse,  // loaded, and may neither move nor go
};

struct Placement {
  std::int32_t artifact = 0;
  std::int32_t memory = 0;
  std::int64_t bytes = 0;
  double saved_s = 0;  // delay that a request is spared, as measured on this machine
  std::int32_t first_need = 0;
  std::int32_t num_needs = 0;
};

struct Artifacts {
  std::int32_t num_artifacts = 0;
  std::int32_t num_memories = 0;
  std::vector<Placement> placements;
  std::vector<std::int32_t> needs;  // positions of placements, less than that of their owner

  std::span<const std::int32_t> needs_of(const Placement& placement) const {
    return std::span(needs).subspan(static_cast<std::size_t>(placement.first_need),
                                    static_cast<std::size_t>(placement.num_needs));
  }
  // Adds a placement behind those that it needs; returns its position.
  std::int32_t add(std::int32_t artifact, std::int32_t memory, std::int64_t bytes, double saved_s,
                   std::initializer_list<std::int32_t> needed = {});
  // CHECKs ranges and order.
  void check_integrity() const;
};

}  // namespace sluice
