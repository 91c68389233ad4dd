// IsolatedModel: the model of a server whose engines run in function processes (src/function): its
// backbone in shared memory, and its text side.
//
// load() writes the backbone, and makes one engine on it in this process, for the facts that the
// text side needs; a setting that no engine accepts fails there and not at a client's first call.
// Then the engine goes. It also starts the warm workers, and waits until one is ready: that shows
// whether the sandbox holds here. A loop that MakeLoop makes is a warm worker if one is ready, of
// whatever adapter. The function processes are this program again, as `sluice function`.
// Owner: the command; it outlives all loops. Threads: load() on one, the rest from any once it has
// succeeded.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/load_served_engine.h"
#include "backbone/backbone.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/startup_timeline.h"
#include "front/served_model.h"
#include "function/outstanding.h"
#include "function/process_engine_loop.h"
#include "function/tenant_loops.h"
#include "function/turn_service.h"
#include "function/warm_workers.h"
#include "server/server_metrics.h"

namespace sluice {

// The options of --isolation process.
struct FunctionSettings {
  bool best_effort = false;                   // --sandbox
  std::int32_t max_functions = 8;             // --max-functions
  Duration idle = std::chrono::seconds(300);  // --function-idle
  std::int32_t warm_workers = 0;              // --warm-workers; of each backbone
  bool turns = true;                          // --turns
  std::int64_t kv_least = 0;  // KV memory that each always has; 0: KV memory is not divided
};

// As many functions compute at a time as there are cores for their threads; by default, one.
// Without turns, all of them, the warm workers included.
TurnKeeper::Options turn_options(const EngineOptions& options, const FunctionSettings& functions);

// For /metrics.
FunctionTurns function_turns(const TurnService& service);

class IsolatedModel {
 public:
  // `max_requests`: of one function. Call once. Errors name file, field or option. `turns` outlives
  // all loops.
  Result<TenantLoops::MakeLoop> load(const std::string& directory, const std::string& name,
                                     const EngineOptions& options,
                                     const FunctionSettings& functions, std::int32_t max_requests,
                                     TurnService& turns, const Clock& clock,
                                     StartupTimeline& timeline, const ServedEngineOptions& served);

  // Ends the warm workers and gives the weights' memory back; the text side stays. REQUIRES: no
  // other loop is left.
  void unload();
  // Writes the weights again, after unload(). The checkpoint must not have changed. There are no
  // warm workers then.
  Status reload();

  // As many as are wanted from now on. REQUIRES: the weights are there.
  WarmWorkers& warm_workers() const { return *warm_; }
  // Warm workers that are ready. REQUIRES: load() has succeeded.
  std::int32_t warm_functions() const { return warm_->count_ready(); }
  const ServedModel& model() const { return *model_; }
  const CacheConfig& cache_config() const { return cache_config_; }
  std::int64_t weight_bytes() const { return weight_bytes_; }
  // The checkpoint's digest.
  const Sha256Digest& digest() const { return digest_; }
  // The facts by which the batches of its functions are checked.
  const OutstandingRequests::Model& checks() const { return checks_; }

 private:
  std::string directory_;
  EngineOptions options_;
  Sha256Digest digest_{};  // of the checkpoint
  std::int64_t weight_bytes_ = 0;
  OutstandingRequests::Model checks_;
  Backbone backbone_;  // read-only descriptors
  std::optional<ServedModel> model_;
  CacheConfig cache_config_;
  std::unique_ptr<WarmWorkers> warm_;  // last: the workers use the backbone
};

// The command `sluice function`, which ProcessEngineLoop starts. Returns the exit code.
int run_function_command();

}  // namespace sluice
