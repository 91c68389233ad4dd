// InstanceHost: the machine as the gateway's driver sees it. It loads backbones and adapters into
// memory, and starts and ends function processes; tests have one without processes.
// Owner: the command. Threads: the event loop's. No call blocks: what takes long happens elsewhere,
// in the order of the calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "function/tenant_loop.h"

namespace sluice {

// The adapter of a function.
struct AdapterState {
  bool is_loaded = false;
  std::int64_t bytes = 0;
  Duration load{0};  // the time of a load, without its rests
};

// A backbone on another machine.
struct RemoteBackbone {
  bool is_possible = false;  // it can load it
  bool is_loaded = false;
  bool is_loading = false;
  bool workers = false;           // it keeps warm workers
  std::int64_t worker_bytes = 0;  // that they take there; 0: unknown
};

// Another machine that runs instances. It loads the backbone of an instance that it is to start.
struct RemoteMachine {
  bool open = false;        // it takes instances
  std::int32_t places = 0;  // instances at a time
  std::int64_t free_bytes = 0;
  std::vector<RemoteBackbone> backbones;
};

// The plan for a backbone on another machine while no instance there uses it.
struct RemoteHolding {
  bool weights = false;
  bool workers = false;  // REQUIRES: weights
  std::vector<std::int32_t>
      adapters;  // of functions; in the order of their worth. REQUIRES: weights
};

class InstanceHost {
 public:
  virtual ~InstanceHost() = default;

  // Loads the weights of a backbone. FunctionLoops::backbone_loaded() follows.
  virtual void load_backbone(std::int32_t backbone) = 0;
  // Gives its memory back, and ends its warm workers. REQUIRES: it is loaded, and its instances
  // were given to end_instance().
  virtual void unload_backbone(std::int32_t backbone) = 0;
  // Keeps warm workers of a backbone, or ends them: processes without a tenant, ready to become any
  // instance on it. start_instance() returns such a one if it can. REQUIRES: the backbone is
  // loaded.
  virtual void keep_workers(std::int32_t backbone, bool keep) = 0;
  // The bytes that the warm workers of a backbone take, as far as is known; 0: there are to be
  // none.
  virtual std::int64_t worker_bytes(std::int32_t backbone) = 0;
  // None: the function has no adapter.
  virtual std::optional<AdapterState> adapter(std::int32_t function) const = 0;
  // Reads the adapter of a function. An error is only logged: the next call shows it.
  virtual void load_adapter(std::int32_t function) = 0;
  // Later calls read it again. Requests that hold it go on.
  virtual void unload_adapter(std::int32_t function) = 0;
  // Starts it on machine 0, which is this one, or on another one. `adapter`: Request::adapter,
  // whose content a request holds meanwhile. REQUIRES: the backbone is loaded on this machine, or
  // possible on the other one.
  virtual std::unique_ptr<TenantLoop> start_instance(std::int32_t machine, std::int32_t backbone,
                                                     std::int32_t adapter,
                                                     const std::string& tenant) = 0;
  // Machines 1, 2, ... A machine keeps its number.
  virtual std::vector<RemoteMachine> machines() const { return {}; }
  // The time that the adapter of a function took to come to another machine, from this one's
  // memory; none: it is not in memory there, or not here.
  virtual std::optional<Duration> adapter_copy(std::int32_t /*machine*/, std::int32_t /*backbone*/,
                                               std::int32_t /*function*/) const {
    return std::nullopt;
  }
  // Tells a machine its plan, which has an item for each backbone. It loads what is missing, and
  // gives back what is not planned and that no instance there uses.
  virtual void plan_machine(std::int32_t /*machine*/, const std::vector<RemoteHolding>& /*plan*/) {}
  // Memory that artifacts may still take on this machine.
  virtual std::int64_t free_bytes() const = 0;
  // Ends its process and destroys it.
  virtual void end_instance(std::unique_ptr<TenantLoop> instance) = 0;
  // KV memory held by instances of this machine that were given to end_instance() and have not
  // ended yet.
  virtual std::int64_t ending_kv_bytes() const = 0;
};

}  // namespace sluice
