#include "adapter/adapter_tensors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

bool exists(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0;
}

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
std::string module_name(const ModelConfig& config, WeightRole role, std::int32_t layer) {
  std::string name = weight_name(config.family, role, layer);
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

Result<SafetensorsFile> open_weights(const std::string& directory) {
  const std::string path = directory + "/adapter_model.safetensors";
  if (!exists(path) && exists(directory + "/adapter_model.bin")) {
    return unsupported(fmt::format(
        "{}/adapter_model.bin is a pickle file, which can run code when it is read; save the "
        "adapter as adapter_model.safetensors (save_pretrained does so by default)",
        directory));
  }
  return SafetensorsFile::open(path);
}

// Why a tensor that no targeted module uses is refused.
std::string_view reason_for(std::string_view name) {
  if (name.find(".lora_embedding_") != std::string_view::npos) {
    return "LoRA of the embedding is not supported";
  }
  if (name.find(".lora_magnitude_vector") != std::string_view::npos) {
    return "a DoRA magnitude, but adapter_config.json: use_dora is false";
  }
  if (name.ends_with(".lora_B.bias") || name.ends_with(".lora_A.bias")) {
    return "a bias of LoRA is not supported";
  }
  if (name.find(".lora_") != std::string_view::npos) {
    return "adapter_config.json does not target its module, or the model does not have it";
  }
  return "not a LoRA tensor; fully trained modules are not supported";
}

}  // namespace

bool AdapterTensors::has_magnitudes() const {
  return std::ranges::any_of(modules_,
                             [](const LoraTensors& one) { return one.magnitude != nullptr; });
}

Result<const TensorInfo*> AdapterTensors::find_part(const std::string& name,
                                                    const std::vector<std::int64_t>& shape) const {
  const TensorInfo* tensor = file_.find(name);
  if (tensor == nullptr) {
    return not_found(fmt::format("{}: tensor {} is missing; adapter_config.json asks for shape {}",
                                 file_.path(), quote_text(name), shape_text(shape)));
  }
  if (tensor->shape != shape) {
    return invalid_argument(
        fmt::format("{}: tensor {} has shape {}; the model and adapter_config.json ask for {}",
                    file_.path(), quote_text(name), shape_text(tensor->shape), shape_text(shape)));
  }
  const auto dtype = weight_dtype(*tensor);
  if (!dtype) return with_context(file_.path(), dtype.error());
  if (*dtype == DType::kF8E4M3) {
    return unsupported(fmt::format("{}: tensor {} is F8_E4M3; expected F32, F16 or BF16",
                                   file_.path(), quote_text(name)));
  }
  return tensor;
}

Status AdapterTensors::find_modules(const AdapterConfig& adapter, const ModelConfig& config) {
  modules_.resize(static_cast<std::size_t>(config.num_layers) * kNumLoraModules);
  std::vector<std::string_view> used;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const auto layer = static_cast<std::int32_t>(i / kNumLoraModules);
    const WeightRole role = kLoraRoles[i % kNumLoraModules];
    const std::string module = module_name(config, role, layer);
    ASSIGN_OR_RETURN(const auto lora, adapter.find(module));
    if (!lora) continue;
    const std::vector<std::int64_t> shape = weight_shape(config, role, layer);
    LoraTensors& tensors = modules_[i];
    tensors.lora = *lora;
    const std::string name = fmt::format("{}{}", kPrefix, module);
    ASSIGN_OR_RETURN(tensors.a, find_part(name + ".lora_A.weight", {lora->rank, shape[1]}));
    ASSIGN_OR_RETURN(tensors.b, find_part(name + ".lora_B.weight", {shape[0], lora->rank}));
    used.push_back(tensors.a->name);
    used.push_back(tensors.b->name);
    if (!adapter.has_magnitudes()) continue;
    ASSIGN_OR_RETURN(tensors.magnitude, find_part(name + ".lora_magnitude_vector", {shape[0]}));
    used.push_back(tensors.magnitude->name);
  }
  if (used.empty()) {
    return invalid_argument(
        "adapter_config.json: target_modules: none of these modules is in the model");
  }
  std::sort(used.begin(), used.end());
  for (const TensorInfo& tensor : file_.tensors()) {
    if (std::binary_search(used.begin(), used.end(), std::string_view(tensor.name))) continue;
    return unsupported(fmt::format("{}: tensor {} is not used: {}", file_.path(),
                                   quote_text(tensor.name), reason_for(tensor.name)));
  }
  return {};
}

Result<AdapterTensors> AdapterTensors::open(const std::string& directory,
                                            const ModelConfig& config) {
  const std::string path = directory + "/adapter_config.json";
  ASSIGN_OR_RETURN(const std::string text, read_file(path, AdapterConfig::kMaxBytes));
  auto adapter = AdapterConfig::parse(text);
  if (!adapter) return with_context(directory, std::move(adapter).error());
  for (const WeightRole role : {WeightRole::kEmbedding, WeightRole::kLmHead}) {
    const std::string module = module_name(config, role, 0);
    auto targeted = adapter->targets_outside_layers(module);
    if (!targeted) return with_context(directory, std::move(targeted).error());
    if (*targeted) {
      return unsupported(
          fmt::format("{}: target_modules: LoRA of {} is not supported; train with the linear "
                      "modules of layers only",
                      path, module));
    }
  }
  ASSIGN_OR_RETURN(SafetensorsFile file, open_weights(directory));
  AdapterTensors tensors(std::move(file));
  if (auto status = tensors.find_modules(*adapter, config); !status) {
    return with_context(directory, std::move(status).error());
  }
  return tensors;
}

}  // namespace sluice
