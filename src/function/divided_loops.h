// DividedKv: function processes of this machine that share one amount of KV memory. It shows what
// each process has and needs, and sets what each may use. FunctionsKv divides the memory.
// DividedLoops: an EngineLoop of such processes.
// Owner: the command. Threads: as the implementation says. Units: bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "function/tenant_loop.h"
#include "server/engine_loop.h"

namespace sluice {

class DividedKv {
 public:
  struct Kv {
    std::uint64_t loop = 0;  // differs from that of all other loops, earlier ones included
    FunctionKv kv;
  };
  virtual ~DividedKv() = default;
  // Functions run, or may start at any time.
  virtual bool serves() const = 0;
  // Lists all loops on this machine. `ending`: KV memory held by those that end and are no longer
  // listed.
  virtual std::vector<Kv> kv(std::int64_t& ending) const = 0;
  // Nothing if the loop has ended.
  virtual void limit_kv(std::uint64_t loop, std::int64_t bytes) = 0;
};

class DividedLoops : public EngineLoop, public DividedKv {
 public:
  bool serves() const final { return state() == EngineState::kReady; }
};

}  // namespace sluice
