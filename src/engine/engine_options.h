// The options of every command that runs a model, parsed and checked. What is not built yet is
// refused by name with kUnsupported, never ignored; what is wrong gets kInvalidArgument naming the
// option and what would be right. Values: plain; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/graph_cache.h"
#include "kv/kv_manager.h"
#include "scheduler/time_budget.h"
#include "tensor/dtype.h"

namespace sluice {

// As given on the command line; empty = not given.
struct EngineOptionTexts {
  std::string device;
  std::string dtype;
  std::string load_format;
  std::string scheduler;
  std::string token_budget;
  std::string tbt_slo_ms;
  std::string max_num_seqs;
  std::string max_model_len;
  std::string block_size;
  std::string kv_cache_memory;
  std::string threads;
  std::vector<std::string> adapters;
  std::string snapshot;
  bool enforce_eager = false;
  bool deterministic = false;
};

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
  // Not on the command line.
  std::optional<TimeBudget> time_budget;  // for kTime
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  std::int32_t steps_in_flight = 0;  // 1 or 2; 0: 2 where the device is asynchronous
};

inline constexpr std::int32_t kDefaultContext = 8192;

Result<EngineOptions> parse_engine_options(const EngineOptionTexts& texts);

// "4GiB", "512MiB", "2GB", "1.5GiB", "1000000" (bytes). `option` is for messages.
Result<std::int64_t> parse_memory_size(std::string_view option, std::string_view text);

// A whole number between low and high. `option` is for messages.
Result<std::int64_t> parse_integer(std::string_view option, std::string_view text, std::int64_t low,
                                   std::int64_t high);

}  // namespace sluice
