// GatewayCounts: what a gateway's driver has done and has now, for metrics and the page. Plain
// data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace sluice {

// Why the driver refused a call.
enum class GatewayRefusal : std::uint8_t { kSlo, kQueue, kPlace, kLoad, kStart };
inline constexpr std::size_t kGatewayRefusals = 5;
inline constexpr std::array<std::string_view, kGatewayRefusals> kGatewayRefusalNames = {
    "slo", "queue", "place", "load", "start"};

struct GatewayCounts {
  // Now.
  std::int32_t functions = 0;
  std::int32_t instances = 0;
  std::int32_t starting = 0;  // of the instances
  std::int32_t backbones = 0;
  std::int32_t backbones_loaded = 0;
  std::int64_t backbone_bytes = 0;  // of those that are loaded
  std::int32_t backbones_warm = 0;  // those whose warm workers are kept
  std::int32_t waiting = 0;         // calls that are held
  std::int32_t prefills = 0;        // dispatched calls without a first token
  // Since the start.
  std::int64_t starts = 0;  // of instances
  std::int64_t warm = 0;    // starts that found a warm worker
  std::int64_t ready = 0;   // other starts that have ended well
  Duration start_time{0};   // of those, together
  std::int64_t loads = 0;   // of backbones, after the start
  std::int64_t unloads = 0;
  std::array<std::int64_t, kGatewayRefusals> refused{};

  void count(GatewayRefusal reason) { ++refused[static_cast<std::size_t>(reason)]; }
};

}  // namespace sluice
