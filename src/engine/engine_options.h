// EngineOptions: how a model is loaded and run. apps/engine_arguments.h makes them from a command
// line. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "engine/graph_cache.h"
#include "kv/kv_manager.h"
#include "scheduler/time_budget.h"
#include "tensor/dtype.h"

namespace sluice {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

enum class LoadFormat : std::uint8_t {
  kAuto,   // the checkpoint's weights
  kDummy,  // random ones; of the checkpoint only config.json is needed
};

// Who sets the token budget. kAuto and kTime need a machine profile: whoever runs the command
// chooses by it and fills in token_budget and time_budget before the engine is loaded.
enum class BudgetMode : std::uint8_t {
  kTokens,  // the user, or the default
  kAuto,    // the largest that keeps the TBT goal
  kTime,    // the same goal, step by step: chunks by predicted time
};

struct EngineOptions {
  DeviceKind device = DeviceKind::kCpu;
  std::int32_t device_index = 0;  // of a GPU
  // Of the weights; FP8: of the layers' matrices. Absent: as stored; dummy: as config.json says.
  std::optional<DType> dtype;
  LoadFormat load_format = LoadFormat::kAuto;
  GraphMode graphs = GraphMode::kReplay;
  std::string scheduler = "stall-free";
  BudgetMode budget_mode = BudgetMode::kTokens;
  std::int32_t token_budget = 512;  // tokens per step
  std::optional<Duration> tbt_slo;  // absent with kAuto, kTime: the paper's strict goal
  std::int32_t max_num_seqs = 64;
  std::optional<std::int32_t> max_model_len;  // absent: the model's, at most kDefaultContext
  std::int32_t block_size = 16;               // tokens per KV block
  // Bytes. Absent: half of what is free after weights, at most what max_num_seqs contexts need.
  std::optional<std::int64_t> kv_cache_memory;
  std::int32_t threads = 0;    // 0: one per CPU
  bool deterministic = false;  // rows do not depend on the batch on a GPU either
  // Set by the program, not by a user.
  std::optional<TimeBudget> time_budget;  // for kTime
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  std::int32_t steps_in_flight = 0;  // 1 or 2; 0: 2 where the device is asynchronous
};

inline constexpr std::int32_t kDefaultContext = 8192;

}  // namespace sluice
