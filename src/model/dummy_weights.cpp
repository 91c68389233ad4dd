#include "model/dummy_weights.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "model/weight_conversion.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

// A prime above every width of a model, so that no two rows of a matrix begin at the same value.
constexpr std::size_t kValues = 4'194'301;
// The standard deviation of the usual initialisation, 0.02, as a uniform distribution. Logits then
// stay finite in F16.
constexpr double kLargest = 0.035;

StoredDType stored_dtype(DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  if (dtype == DType::kF32) return StoredDType::kF32;
  return dtype == DType::kF16 ? StoredDType::kF16 : StoredDType::kBF16;
}

WeightSource dummy_weight(const ModelConfig& config, WeightRole role, std::int32_t layer,
                          DType dtype) {
  WeightSource source;
  source.tensor.shape = weight_shape(config, role, layer);
  if (source.tensor.shape.empty()) return source;
  source.tensor.name = weight_name(config.family, role, layer);
  source.tensor.dtype = stored_dtype(dtype);
  source.tensor.file = -1;
  source.tensor.bytes = size_of(dtype);
  for (const std::int64_t dim : source.tensor.shape) {
    source.tensor.bytes *= static_cast<std::uint64_t>(dim);
  }
  source.dtype = dtype;
  source.sharding = weight_sharding(config.family, role);
  return source;
}

// The index in the values at which a tensor begins (FNV-1a).
std::size_t start_of(std::string_view tensor) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : tensor) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return static_cast<std::size_t>(hash % kValues);
}

}  // namespace

ModelWeightsPlan plan_dummy_weights(const ModelConfig& config, DType dtype) {
  ModelWeightsPlan plan;
  plan.last_layer = config.num_layers;
  plan.dtype = dtype;
  plan.tied = config.tie_embeddings;
  plan.embedding = dummy_weight(config, WeightRole::kEmbedding, 0, dtype);
  plan.final_norm = dummy_weight(config, WeightRole::kFinalNorm, 0, dtype);
  plan.lm_head = plan.tied ? plan.embedding : dummy_weight(config, WeightRole::kLmHead, 0, dtype);
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    LayerWeightSources& sources = plan.layers.emplace_back();
    for (std::size_t i = static_cast<std::size_t>(WeightRole::kInputNorm); i < kNumWeightRoles;
         ++i) {
      sources.weights[i] = dummy_weight(config, static_cast<WeightRole>(i), layer, dtype);
    }
  }
  return plan;
}

void DummyValues::for_each_piece(std::string_view tensor, DType dtype, std::size_t count,
                                 FunctionRef<void(std::span<const std::byte>)> take) {
  const std::vector<std::byte>& values = values_of(dtype);
  std::size_t at = start_of(tensor);
  while (count > 0) {
    const std::size_t piece = std::min(count, kValues - at);
    take(std::span(values).subspan(at * size_of(dtype), piece * size_of(dtype)));
    count -= piece;
    at = 0;
  }
}

const std::vector<std::byte>& DummyValues::values_of(DType dtype) {
  std::vector<std::byte>& values = values_[dtype];
  if (!values.empty()) return values;
  std::vector<float> drawn(kValues);
  SplitMix64 rng(0x5EED);
  for (float& value : drawn) value = static_cast<float>((2 * rng.uniform() - 1) * kLargest);
  values.resize(kValues * size_of(dtype));
  if (dtype == DType::kF8E4M3) {
    for (std::size_t i = 0; i < kValues; ++i) {
      values[i] = std::byte{float_to_e4m3(drawn[i] / kFp8Scale)};
    }
    return values;
  }
  convert_weights(reinterpret_cast<const std::byte*>(drawn.data()), DType::kF32, values.data(),
                  dtype, kValues);
  return values;
}

}  // namespace sluice
