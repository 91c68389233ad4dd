// place_instance(): the machine on which an instance starts: the one that has most of it loaded.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace sluice {

// A machine that could run the instance.
struct MachineOffer {
  std::int32_t machine = 0;
  std::int32_t places = 0;  // instances at a time
  std::int32_t used = 0;    // by instances that are there
  bool loaded = false;      // it has the backbone in memory
  bool can_load = false;    // or can bring it there
  bool warm = false;        // it keeps warm workers of the backbone
};

// Chooses among the machines with a free place: one that has the backbone, before one that must
// load it; then one with warm workers; then the one with the smallest part of its places in use;
// then the first. None: no machine has a place now.
std::optional<MachineOffer> place_instance(std::span<const MachineOffer> offers);

}  // namespace sluice
