// Measures a machine profile of a model: loads an executor with the engine options, but with memory
// for the grid of steps, and runs the profiler on it.
// Owner: a command. Threads: the engine's.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/engine_loader.h"
#include "engine/engine_options.h"
#include "profile/profiler.h"
#include "snapshot/snapshot.h"

namespace sluice {

struct MeasureOptions {
  ProfilerOptions profiler;
  std::int32_t max_tokens = 2048;                     // of a step, at most the context
  std::int64_t max_kv_bytes = std::int64_t{8} << 30;  // unless --kv-cache-memory says otherwise
};

// The identity of a profile of this model (identify_model()) on this device and pool.
ProfileIdentity profile_identity(const ModelIdentity& model, const Device& device,
                                 const ThreadPool& pool);

// The KV memory of one token in all layers.
std::int64_t kv_bytes_per_token(const ModelConfig& config, DType dtype);

// Progress goes to stderr: a line that is rewritten on a terminal, else one every ten seconds.
// SIGINT ends it with kCancelled when catch_interrupts() was called. `snapshot`: parts that the
// load need not make; it has collected what the load offers. Null = none.
Result<MachineProfile> measure_machine(const std::string& directory, const EngineOptions& options,
                                       Device& device, ThreadPool& pool, const Clock& clock,
                                       const MeasureOptions& measure, Snapshot* snapshot = nullptr);

}  // namespace sluice
