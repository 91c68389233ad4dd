// TenantLoop: an EngineLoop that computes for one tenant, which may be named after its start.
// Owner, threads: as EngineLoop says.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/engine_loop.h"

namespace sluice {

// How much a loop's process uses, for a bill.
struct FunctionUse {
  Duration turn_time{0};       // since the loop was made, over all its processes
  std::int64_t own_bytes = 0;  // resident memory that it shares with no other process; 0: not ready
};

// The KV memory of a loop's process.
struct FunctionKv {
  std::int64_t limit = 0;  // limit_kv(), or what a process starts with
  std::int64_t held = 0;   // the process holds at most so much
  std::int64_t used = 0;   // by sequences, as the process says
  std::int32_t running = 0;
  std::int32_t waiting = 0;
};

class TenantLoop : public EngineLoop {
 public:
  // Names the tenant of all later requests. Before the first call it is the one without a name.
  virtual void set_tenant(const std::string& tenant) = 0;
  virtual FunctionUse use() const = 0;
  // Limits its KV memory to `bytes`, of what it was made with; 0: all of it. Sequences that fit no
  // longer wait, or end with FinishReason::kNoMemory. Memory beyond the limit goes back to the
  // system, which FunctionUse::own_bytes shows; a process that ignores the limit keeps its memory.
  virtual void limit_kv(std::int64_t bytes) = 0;
  // All zero if the loop does not know: it was made without a least KV memory, or its process runs
  // on another machine.
  virtual FunctionKv kv() const { return {}; }
  // Its machine does not answer any more. All requests have ended with kError, and none may be
  // submitted. The state is kLoading while the function may still run there, then kFailed.
  virtual bool is_lost() const { return false; }

  // No frame to a function process carries pins.
  Status supports_pins() const final {
    return unsupported("--isolation process has no pins; use --isolation none");
  }
  Status ask_pins(PinQuestion /*question*/) final { return supports_pins(); }
};

}  // namespace sluice
