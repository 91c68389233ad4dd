// GatewayState: what a gateway has now, for its page: functions, backbones, memory, queues, times
// and money. A tenant's state has its own functions only; an admin's has all, and the machine.
// Values: plain. gateway_state_json() is pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "gateway/gateway_counts.h"
#include "server/live_stats.h"

namespace sluice {

enum class FunctionPhase : std::uint8_t {
  kAbsent,    // no process and no call
  kHeld,      // calls wait for its backbone or for a place
  kStarting,  // its process starts
  kReady,     // it has a process
};

struct FunctionView {
  FunctionPhase phase = FunctionPhase::kAbsent;
  std::int32_t waiting = 0;            // calls
  std::int32_t running = 0;            // calls that its process has
  std::int64_t calls = 0;              // since the gateway's start
  std::int64_t own_bytes = 0;          // of its process, shared with no other one
  std::vector<std::int32_t> machines;  // of its processes; 0: the gateway's own
  // From arrival to the first token, of the last calls.
  std::optional<RecentDurations::Percentiles> ttft;
  std::optional<std::int64_t> adapter_bytes;  // none: it has no adapter in memory
};

struct BackboneView {
  bool is_loaded = false;
  bool is_loading = false;
  std::int64_t bytes = 0;
  std::int32_t instances = 0;
  std::int64_t worker_bytes = 0;  // of its warm workers; 0: none are kept
};

struct GatewayState {
  struct Function {
    std::string_view name;  // full
    std::string_view tenant;
    std::string_view backbone;
    FunctionView view;
    double cost = 0;  // of the day
  };
  struct Backbone {
    std::string_view name;
    BackboneView view;
  };
  // Another machine that runs functions.
  struct Agent {
    struct Backbone {
      std::string_view name;
      std::string_view state;  // "absent", "loading" or "loaded"
      std::int64_t workers = 0;
      std::int64_t adapters = 0;
    };
    std::string_view name;
    std::string_view state;  // as agent_phase_name() says
    Duration lease_left{0};
    std::int32_t places = 0;
    std::int64_t memory_bytes = 0;
    std::int64_t free_bytes = 0;
    std::vector<Backbone> backbones;          // those that it can load
    std::vector<std::string_view> functions;  // with a process there
  };
  // The machine, for an admin.
  struct Machine {
    GatewayCounts counts;
    std::int32_t max_instances = 0;
    std::int64_t memory_bytes = 0;
    std::int64_t free_bytes = 0;
    std::vector<Backbone> backbones;
    std::vector<Agent> agents;
    double platform_cost = 0;  // of the day
  };

  std::string_view state;
  Duration uptime{0};
  std::string_view currency;
  std::int64_t functions_total = 0;  // those that the caller may see
  std::vector<Function> functions;   // the most important ones of them
  std::optional<Machine> machine;
};

std::string gateway_state_json(const GatewayState& state);

}  // namespace sluice
