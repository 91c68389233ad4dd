// Parses and checks the engine options of every command that runs a model: from texts to
// EngineOptions. Errors: kUnsupported names an option that is not built yet; it is never ignored.
// kInvalidArgument names the option and the right form. Plain data; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"

namespace sluice {

// As given on the command line; empty = not given.
struct EngineOptionTexts {
  std::string device;
  std::string isa;
  std::string dtype;
  std::string load_format;
  std::string large_pages;
  std::string scheduler;
  std::string token_budget;
  std::string tbt_slo_ms;
  std::string max_num_seqs;
  std::string max_model_len;
  std::string block_size;
  std::string kv_cache_memory;
  std::string gpu_memory_utilization;
  std::string kv_idle_release;
  std::string kv_disk;
  std::string kv_disk_key;
  std::string kv_ram;
  std::string threads;
  std::vector<std::string> adapters;  // NAME=DIRECTORY, NAME=MIX
  std::string adapter_slots;
  std::string max_lora_rank;
  std::string snapshot;
  std::string restore;
  bool kv_pretouch = false;
  bool enforce_eager = false;
  bool prefix_caching = true;
  bool deterministic = false;
  friend bool operator==(const EngineOptionTexts&, const EngineOptionTexts&) = default;
};

Result<EngineOptions> parse_engine_options(const EngineOptionTexts& texts);

}  // namespace sluice
