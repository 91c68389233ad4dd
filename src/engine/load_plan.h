// LoadPlan: everything about a model's load that is decided before memory is touched, and the files
// that the weights come from. Both ways to load a model decide with these functions: from a
// checkpoint (engine_loader.h) and from a backbone (backbone_loader.h).
// Functions; the engine's thread. Errors name file, field or option.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/arena.h"
#include "device/device.h"
#include "engine/engine_loader.h"
#include "engine/engine_options.h"
#include "engine/model_runner.h"
#include "kv/block_hash.h"
#include "kv/kv_layout.h"
#include "kv/kv_manager.h"
#include "model/families.h"
#include "model/model_config.h"
#include "model/packed_checkpoint.h"
#include "model/weights.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"

namespace sluice {

// Where a model's weights come from.
struct WeightFiles {
  Checkpoint checkpoint;
  ModelWeightsPlan plan;
  Sha256Digest digest{};
};

// With dummy weights the digest covers config.json alone, so it differs from every checkpoint's.
// Matrices that other tools packed are repacked, over the pool.
Result<WeightFiles> find_weights(const std::string& directory, const ModelConfig& config,
                                 const EngineOptions& options, ThreadPool& pool,
                                 Repacking repacking = Repacking::kFull);

// The longest context: the option's, or the model's up to kDefaultContext.
Result<std::int32_t> choose_context(const ModelConfig& config, const EngineOptions& options);

// kUnsupported if the device cannot compute with FP8 and the matrices are in FP8.
Status check_fp8(WeightDTypes dtypes, const EngineOptions& options, const DeviceTraits& traits);

// kUnsupported if weights are in INT8, INT4 or blocks, wanted or stored, and the device, the
// checkpoint or the model rules it out.
Status check_integers(const ModelWeightsPlan& sources, const ModelConfig& config,
                      const EngineOptions& options, const DeviceTraits& traits);

// Bytes that KV memory may take; negative if there are none. `share`:
// EngineOptions::gpu_memory_share; absent: half of the free memory. `others`: bytes that weights,
// inputs and workspace will take of the memory that is free now.
std::int64_t room_for_kv(const MemoryInfo& memory, std::optional<double> share,
                         std::int64_t others);

// Bytes of KV memory that the system has still to give when the model is loaded, at most.
std::int64_t kv_bytes_to_come(KvBacking backing, std::int32_t blocks, const KvLayout& layout);

struct LoadPlan {
  ModelRunnerOptions runner;
  KvLayout layout;
  WeightDTypes dtypes;
  ArenaPlan arena;
  SchedulerOptions scheduler;
  std::unique_ptr<Policy> policy;
};

// `loaded` has config, generation and eos_ids.
Result<LoadPlan> plan_load(const LoadedModel& loaded, const EngineOptions& options,
                           WeightDTypes dtypes, const DeviceTraits& traits);

// A warning where no --dtype asks for weights in F16 or F32, and this device is faster with BF16;
// empty otherwise.
std::string slow_dtype_warning(WeightDTypes dtypes, const EngineOptions& options,
                               const DeviceTraits& traits);

// Reads the adapters given at start, and makes room for their slots. `model`: directory or file of
// the base model.
Status plan_adapters(const std::string& model, const EngineOptions& options,
                     const DeviceTraits& traits, LoadedModel& loaded, LoadPlan& plan);

// Sizes KV memory by the memory that the other buffers leave free, and finishes the arena's plan.
Status plan_kv_memory(LoadPlan& plan, const EngineOptions& options, const Device& device,
                      LoadedModel& loaded);

// Makes room for one adapter up to `max_rank`, which lies in sealed memory and is added later.
Status plan_sealed_adapter(std::int32_t max_rank, const DeviceTraits& traits, LoadedModel& loaded,
                           LoadPlan& plan);

// Backs adapters, inputs and workspace.
Status back_buffers(Arena& arena);

// The identity of the KV blocks of a model with these weights.
KvIdentity kv_identity(const Sha256Digest& digest, WeightDTypes dtypes, std::int32_t block_size);

// Fills in `loaded` from the plan and the runner, which was made by it and is started.
void finish_load(const EngineOptions& options, const DeviceTraits& traits,
                 const Sha256Digest& digest, LoadPlan plan, std::unique_ptr<ModelRunner> runner,
                 LoadedExecutor& loaded);

}  // namespace sluice
