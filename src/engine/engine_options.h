// EngineOptions: how a model is loaded and run. apps/engine_arguments.h makes them from a command
// line. Plain data; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/graph_cache.h"
#include "kv/kv_manager.h"
#include "scheduler/time_budget.h"
#include "snapshot/snapshot_choice.h"
#include "tensor/dtype.h"

namespace sluice {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

enum class LoadFormat : std::uint8_t {
  kAuto,   // the checkpoint's weights
  kDummy,  // random weights; needs only the checkpoint's config.json
};

// LoRA adapters. Without sources and without `at_run_time` the engine has none.
struct AdapterSettings {
  struct Source {
    std::string name;
    std::string text;  // a directory or a mix (AdapterStore::load)
  };
  std::vector<Source> sources;  // loaded at start
  bool at_run_time = false;     // more may be loaded later
  std::string model = {};       // for an engine on a backbone: the base model, for DoRA
  bool sealed = false;          // images in sealed memory, for function processes
  std::int32_t slots = 0;       // adapters in device memory at once; 0: up to kDefaultSlots
  std::int32_t max_rank = 0;    // of a module; 0: as the sources need
  static constexpr std::int32_t kDefaultSlots = 8;
  static constexpr std::int32_t kDefaultRank = 64;  // at least, if at_run_time
  bool any() const { return at_run_time || !sources.empty(); }
};

// How the token budget is set. kAuto and kTime need a machine profile: the command reads the
// profile and sets token_budget and time_budget before it loads the engine (needs_profile()).
enum class BudgetMode : std::uint8_t {
  kTokens,  // set by the user, or the default
  kFollow,  // token_budget, and beside streams as measured steps say (engine/step_costs.h)
  kAuto,    // the largest budget that keeps the TBT goal
  kTime,    // keeps the TBT goal step by step: limits chunks by predicted time
};

inline bool needs_profile(BudgetMode mode) {
  return mode == BudgetMode::kAuto || mode == BudgetMode::kTime;
}

// When KV memory is taken from the system.
enum class KvBacking : std::uint8_t {
  kByNeed,   // one chunk at start, more as blocks are needed
  kTouched,  // all of it at start, and its pages too; it can shrink and grow later
  kAtStart,  // all of it, for measurements
};

// A folder on a disk that keeps KV blocks.
struct KvDiskSettings {
  std::string folder;
  std::int64_t bytes = 0;  // at most, of all files
  // Limits; 0 or less: the tier's own (offload/disk_tier.h).
  std::int64_t free_bytes = 0;    // that stay free on the filesystem
  std::int64_t max_age_s = 0;     // of a block since its last use
  std::int64_t daily_bytes = 0;   // written a day
  std::int64_t stream_bytes = 0;  // of `bytes`: for the KV of a sequence larger than memory
  std::string key_file;           // the blocks are encrypted with its key; empty: they are not
  TierEviction eviction = TierEviction::kLeastRecent;
  bool uring = true;  // reads use io_uring where the kernel allows it
};

class LentMemory;

struct EngineOptions {
  DeviceKind device = DeviceKind::kCpu;
  std::int32_t device_index = 0;  // of a GPU
  std::string isa;                // of CPU kernels; empty: the best of this machine
  // The weights' dtype; FP8 is for the layers' matrices, INT8 and INT4 for all matrices. Absent: as
  // stored, or, for dummy weights, as config.json says.
  std::optional<DType> dtype;
  LoadFormat load_format = LoadFormat::kAuto;
  bool large_pages = true;  // mapped weights move into large pages (engine/weight_pages.h)
  GraphMode graphs = GraphMode::kReplay;
  std::string scheduler = "stall-free";
  BudgetMode budget_mode = BudgetMode::kTokens;
  std::int32_t token_budget = 512;  // tokens per step
  std::optional<Duration> tbt_slo;  // absent with kAuto, kTime: the paper's strict goal
  std::int32_t max_num_seqs = 64;
  std::optional<std::int32_t> max_model_len;  // absent: the model's, at most kDefaultContext
  std::int32_t block_size = 16;               // tokens per KV block
  // The most bytes of KV memory. Absent: half of the memory that is free after weights, at most the
  // need of max_num_seqs contexts.
  std::optional<std::int64_t> kv_cache_memory;
  // Instead of kv_cache_memory: the share of the device's memory in use when KV memory is full.
  std::optional<double> gpu_memory_share;
  // The bytes of KV memory that the engine never lends (`--kv-cache-memory MIN-MAX`); it begins
  // with this limit. Absent: memory is not lent.
  std::optional<std::int64_t> kv_cache_least;
  std::optional<KvDiskSettings> kv_disk;  // the command adds it (add_tier())
  // Bytes of this machine's memory that keep KV blocks below KV memory (offload/ram_tier.h); the
  // command adds it.
  std::optional<std::int64_t> kv_ram;
  // The same, in memory that other processes lend. Shared with the side that speaks to them.
  std::shared_ptr<LentMemory> lent_memory = nullptr;
  // KV memory is returned to the system after this long without a request. 0: never.
  Duration kv_idle_release{0};
  std::int32_t threads = 0;    // 0: as base/thread_plan.h says
  SnapshotChoice snapshot;     // --snapshot; off unless a command line says otherwise
  bool deterministic = false;  // rows do not depend on the batch, also on a GPU
  AdapterSettings adapters;
  // Set by the program, not by a user.
  std::optional<TimeBudget> time_budget;  // for kTime
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  KvBacking kv_backing = KvBacking::kByNeed;
  // SchedulerOptions::decode_headroom; absent: its default.
  std::optional<std::int32_t> decode_headroom;
  // SchedulerOptions::meeting_tokens; absent: its default.
  std::optional<std::int32_t> meeting_tokens;
  std::int32_t steps_in_flight = 0;  // 1 or 2; 0: 2 if the device is asynchronous, else 1
};

inline constexpr std::int32_t kDefaultContext = 8192;

}  // namespace sluice
