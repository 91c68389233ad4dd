// AdapterTensors: a directory in PEFT's format (adapter_config.json, adapter_model.safetensors),
// checked against a model. Each linear module that the configuration targets has both halves, of
// the right shapes; no tensor is left over. The file is mapped, and its values are read later.
// Pickle files are never opened. Errors name the file and the field or tensor.
// Owner: the code that prepares an image. Immutable after open(); any thread may read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "adapter/adapter_config.h"
#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "model/families.h"
#include "model/model_config.h"

namespace sluice {

// The modules of a layer that an adapter may change, in the order of an image.
inline constexpr std::array<WeightRole, 7> kLoraRoles = {
    WeightRole::kQ,    WeightRole::kK,  WeightRole::kV,   WeightRole::kO,
    WeightRole::kGate, WeightRole::kUp, WeightRole::kDown};
inline constexpr std::size_t kNumLoraModules = kLoraRoles.size();

// Module m of layer l has index l * kNumLoraModules + m.
struct LoraTensors {
  const TensorInfo* a = nullptr;          // [rank, K]; null: the adapter leaves the module alone
  const TensorInfo* b = nullptr;          // [N, rank]
  const TensorInfo* magnitude = nullptr;  // [N], of DoRA; null: the module has none
  ModuleLora lora;
};

class AdapterTensors {
 public:
  static Result<AdapterTensors> open(const std::string& directory, const ModelConfig& config);

  const SafetensorsFile& file() const { return file_; }
  const std::vector<LoraTensors>& modules() const { return modules_; }
  bool has_magnitudes() const;  // of any module

 private:
  explicit AdapterTensors(SafetensorsFile file) : file_(std::move(file)) {}
  Status find_modules(const AdapterConfig& adapter, const ModelConfig& config);
  Result<const TensorInfo*> find_part(const std::string& name,
                                      const std::vector<std::int64_t>& shape) const;

  SafetensorsFile file_;
  std::vector<LoraTensors> modules_;
};

}  // namespace sluice
