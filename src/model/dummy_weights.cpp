#include "model/dummy_weights.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "model/quantized_weights.h"
#include "model/weight_conversion.h"

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

void DummyValues::for_each_piece(std::string_view tensor, DType dtype, std::size_t bytes,
                                 FunctionRef<void(std::span<const std::byte>)> take) {
  const std::vector<std::byte>& values = values_of(dtype);
  const auto block = static_cast<std::size_t>(block_of(dtype).bytes);
  std::size_t at = start_of(tensor) * block % values.size();
  while (bytes > 0) {
    const std::size_t piece = std::min(bytes, values.size() - at);
    take(std::span(values).subspan(at, piece));
    bytes -= piece;
    at = 0;
  }
}

const std::vector<std::byte>& DummyValues::values_of(DType dtype) {
  std::vector<std::byte>& values = values_[dtype];
  if (!values.empty()) return values;
  std::vector<float> drawn(kValues);
  SplitMix64 rng(0x5EED);
  for (float& value : drawn) value = static_cast<float>((2 * rng.uniform() - 1) * kLargest);
  if (dtype == DType::kI4) {
    values.resize(static_cast<std::size_t>(bytes_of(dtype, kValues)));
    CHECK(quantize_to_int4(reinterpret_cast<const std::byte*>(drawn.data()), DType::kF32, kValues,
                           0, values));
    return values;
  }
  values.resize(kValues * size_of(dtype));
  if (has_scales(dtype)) {
    const QuantizedBlocks whole{1, kValues, 1, kValues, dtype};
    const float scale = scale_of(dtype);
    quantize(reinterpret_cast<const std::byte*>(drawn.data()), DType::kF32, whole, {&scale, 1}, 0,
             kValues, values.data());
    return values;
  }
  convert_weights(reinterpret_cast<const std::byte*>(drawn.data()), DType::kF32, values.data(),
                  dtype, kValues);
  return values;
}

}  // namespace sluice
