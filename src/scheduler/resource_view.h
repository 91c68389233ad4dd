// The scheduler's only window on the world outside its own state: plain numbers, filled by the
// engine (or the simulator) before each plan. Policies read it and decide; they never call out.
// Owner: whoever calls plan(); spans stay valid during that call. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"

namespace sluice {

// Where an adapter's weights are, fastest first.
enum class Residency : std::uint8_t { kDevice, kLoading, kHost, kDisk };

struct AdapterResource {
  Residency residency = Residency::kDevice;
  Duration load_cost{0};  // expected time until usable
};

// A memory tier that KV blocks may be paged to: peer, host, disk.
struct TierResource {
  std::int64_t free_blocks = 0;
  Duration page_out_cost{0};  // per block
  Duration page_in_cost{0};   // per block
};

struct ResourceView {
  std::span<const AdapterResource> adapters;       // by adapter index
  std::span<const TierResource> tiers;             // fastest first; empty: nowhere to page to
  std::span<const std::int32_t> graph_capacities;  // token counts a graph exists for, ascending
};

}  // namespace sluice
