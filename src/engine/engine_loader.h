// Builds an engine on a device from a checkpoint directory: configuration, weights in the arena, KV
// memory by the rules of EngineOptions, scheduler, executor.
// Owner: the front calls it once per model. Threads: the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapter/adapter_store.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "engine/device_counters.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "engine/logits_tap.h"
#include "engine/startup_timeline.h"
#include "engine/step_trace.h"
#include "engine/weight_pages.h"
#include "engine/weight_stream.h"
#include "kv/block_hash.h"
#include "kv/kv_manager.h"
#include "model/generation_defaults.h"
#include "model/model_config.h"
#include "offload/kv_tier.h"
#include "scheduler/executor.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"
#include "snapshot/snapshot.h"

namespace sluice {

struct LoadedModel {
  ModelConfig config;
  GenerationDefaults generation;
  std::vector<TokenId> eos_ids;  // the end-of-sequence ids
  // The identity under which prompt blocks are named; the caller that builds a request adds its
  // adapter and tenant salt.
  KvIdentity kv_identity;
  std::int32_t block_size = 0;
  DType dtype = DType::kF32;         // of the layers' matrices
  std::int64_t kv_bytes = 0;         // at most
  std::int32_t kv_blocks = 0;        // at most
  std::int32_t first_kv_blocks = 0;  // backed at start
  std::int32_t least_kv_blocks = 0;  // with EngineOptions::kv_cache_least: the limit at the start
  std::int64_t kv_block_bytes = 0;
  LogitsTap* logits = nullptr;  // of the executor, which owns it
  TraceTap* trace = nullptr;    // likewise
  // Brings the weights in, if the device maps files; the executor owns it.
  WeightStream* stream = nullptr;
  // Moves weights into large pages while the engine runs; null: they stay. The executor owns it.
  WeightPages* large_pages = nullptr;
  SharedAdapters adapters;        // null: the engine has none
  std::int32_t num_adapters = 0;  // EngineLimits::num_adapters
};

struct LoadedEngine : LoadedModel {
  std::unique_ptr<Engine> engine;
};

// An executor without an engine, for callers that drive it by hand (the profiler).
struct LoadedExecutor : LoadedModel {
  std::unique_ptr<Executor> executor;
  const DeviceMeter* meter = nullptr;  // of the executor, which owns it
  KvContents* contents = nullptr;      // likewise
  KvOptions kv;                        // the options that the executor was made for
  std::vector<TierPage> stored;        // of the tier, for the index
  SchedulerOptions scheduler;
  std::unique_ptr<Policy> policy;
};

// Identifies the model to which measurements belong; read without loading weights.
struct ModelIdentity {
  std::string digest;         // hex
  DType dtype = DType::kF32;  // of the layers' matrices
  DType kv_dtype = DType::kF32;
  std::int32_t max_model_len = 0;  // as the engine will have it
};
Result<ModelIdentity> identify_model(const std::string& directory, const EngineOptions& options);

// `snapshot`: sections that need not be made; null = none. Offers to it refer to the
// executor until they are written, and it outlives the executor. REQUIRES: device and pool outlive
// the executor. Errors name file, field or option.
Result<LoadedExecutor> load_executor(const std::string& directory, const EngineOptions& options,
                                     Device& device, ThreadPool& pool, StartupTimeline& timeline,
                                     Snapshot* snapshot = nullptr);

// As above. REQUIRES: device, pool and clock outlive the engine. Errors name file, field or option.
Result<LoadedEngine> load_engine(const std::string& directory, const EngineOptions& options,
                                 Device& device, ThreadPool& pool, const Clock& clock,
                                 StartupTimeline& timeline, Snapshot* snapshot = nullptr);

// Gives the executor a tier below its KV memory; the tier goes with it. Call it before
// make_engine(). Errors: kUnsupported if the device's memory is not the host's, kInvalidArgument
// without a prefix cache.
Status add_tier(std::unique_ptr<KvTier> tier, TierEviction eviction, LoadedExecutor& loaded);

// Lets the engine stream the KV of sequences that do not fit into its memory, through a file in the
// tier's folder. Call it before make_engine(). Errors: KvContents::use_stream().
Status add_stream(const KvStream::Options& options, LoadedExecutor& loaded);

// The engine of an executor.
LoadedEngine make_engine(LoadedExecutor parts, const Clock& clock, StartupTimeline& timeline);

}  // namespace sluice
