// LoRA adapters in PEFT's format for tests: random values, or given ones. Header only.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/families.h"
#include "model/model_config.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {

// Tensors by name, F32.
struct AdapterTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using AdapterFile = std::map<std::string, AdapterTensor>;

inline std::string lora_tensor_name(const ModelConfig& config, WeightRole role, std::int32_t layer,
                                    std::string_view half) {
  std::string name = weight_name(config.family, role, layer);
  name.resize(name.size() - std::string_view(".weight").size());
  return fmt::format("base_model.model.{}.{}.weight", name, half);
}

// Random tensors of `rank` for these modules of all layers; large enough to change tokens.
inline AdapterFile random_adapter(const ModelConfig& config, const std::vector<WeightRole>& roles,
                                  std::int32_t rank, std::uint64_t seed, float size = 0.1F) {
  AdapterFile file;
  SplitMix64 rng(seed);
  const auto fill = [&](std::int64_t rows, std::int64_t columns) {
    AdapterTensor tensor{{rows, columns}, {}};
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      tensor.values.push_back(size * (2 * static_cast<float>(rng.uniform()) - 1));
    }
    return tensor;
  };
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const WeightRole role : roles) {
      const auto shape = weight_shape(config, role, layer);
      file[lora_tensor_name(config, role, layer, "lora_A")] = fill(rank, shape[1]);
      file[lora_tensor_name(config, role, layer, "lora_B")] = fill(shape[0], rank);
    }
  }
  return file;
}

inline std::string adapter_file_bytes(const AdapterFile& file) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, tensor] : file) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()),
                tensor.values.size() * sizeof(float));
    if (header.size() > 1) header += ',';
    header += fmt::format(R"("{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", name,
                          fmt::join(tensor.shape, ","), begin, data.size());
  }
  return safetensors_bytes(header + "}", data);
}

inline void write_adapter(const std::string& directory, const std::string& config,
                          const AdapterFile& file) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/adapter_config.json") << config;
  std::ofstream(directory + "/adapter_model.safetensors", std::ios::binary)
      << adapter_file_bytes(file);
}

inline std::string adapter_config_json(std::int32_t rank, double alpha,
                                       const std::string& modules = "\"all-linear\"") {
  return fmt::format(R"({{"peft_type":"LORA","r":{},"lora_alpha":{},"target_modules":{}}})", rank,
                     alpha, modules);
}

inline const std::vector<WeightRole>& all_lora_roles() {
  static const std::vector<WeightRole> roles = {
      WeightRole::kQ,    WeightRole::kK,  WeightRole::kV,   WeightRole::kO,
      WeightRole::kGate, WeightRole::kUp, WeightRole::kDown};
  return roles;
}

// An adapter of all seven modules.
inline void write_random_adapter(const std::string& directory, const ModelConfig& config,
                                 std::int32_t rank, std::uint64_t seed, float size = 0.1F) {
  write_adapter(directory, adapter_config_json(rank, 2.0 * rank),
                random_adapter(config, all_lora_roles(), rank, seed, size));
}

}  // namespace sluice
