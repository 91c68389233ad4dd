#include "adapter/dora_gains.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "checkpoint/quote_text.h"
#include "model/families.h"
#include "model/model_files.h"
#include "model/weight_conversion.h"

namespace sluice {
namespace {

// A loop of constant length is compiled to vectors.
constexpr std::size_t kLanes = 16;
// The values that are added up between two checks of whether to go on.
constexpr std::size_t kGainValues = std::size_t{1} << 18;

WeightRole bias_of(WeightRole role) {
  switch (role) {
    case WeightRole::kQ: return WeightRole::kQBias;
    case WeightRole::kK: return WeightRole::kKBias;
    case WeightRole::kV: return WeightRole::kVBias;
    case WeightRole::kO: return WeightRole::kOBias;
    case WeightRole::kGate: return WeightRole::kGateBias;
    case WeightRole::kUp: return WeightRole::kUpBias;
    default: return WeightRole::kDownBias;
  }
}

std::vector<float> floats_of(std::span<const std::byte> data, DType dtype) {
  std::vector<float> values(data.size() / size_of(dtype));
  convert_weights(data.data(), dtype, reinterpret_cast<std::byte*>(values.data()), DType::kF32,
                  values.size());
  return values;
}

// to += factor * from
void add_scaled(float factor, const float* from, std::span<float> to) {
  std::size_t k = 0;
  for (; k + kLanes <= to.size(); k += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) to[k + j] += factor * from[k + j];
  }
  for (; k < to.size(); ++k) to[k] += factor * from[k];
}

double norm_of(std::span<const float> row) {
  double sum = 0.0;
  for (const float value : row) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

class GainReader {
 public:
  GainReader(const AdapterTensors& adapter, const Checkpoint& checkpoint,
             const ModelWeightsPlan& plan, const StopCheck& stop)
      : adapter_(adapter), checkpoint_(checkpoint), plan_(plan), stop_(stop) {}

  Result<ModuleGains> read(std::size_t index) const {
    const LoraTensors& tensors = adapter_.modules()[index];
    ModuleGains gains;
    if (tensors.magnitude == nullptr) return gains;
    const LayerWeightSources& layer =
        plan_.layer(static_cast<std::int32_t>(index / kNumLoraModules));
    const WeightRole role = kLoraRoles[index % kNumLoraModules];
    const WeightSource& weight = layer[role];
    if (!is_float(weight.dtype)) {
      return unsupported(fmt::format(
          "{}: DoRA (use_dora) needs base weights in F32, F16 or BF16; {} is in {}",
          adapter_.file().path(), quote_text(weight.tensor.name), dtype_name(weight.dtype)));
    }
    ASSIGN_OR_RETURN(const std::vector<double> norms, row_norms(tensors, weight));
    gains.gain = half(*tensors.magnitude);
    for (std::size_t n = 0; n < norms.size(); ++n) {
      gains.gain[n] = static_cast<float>(gains.gain[n] / norms[n]);
      if (std::isfinite(gains.gain[n])) continue;
      return invalid_argument(fmt::format(
          "{}: tensor {}: element {} gives no finite gain, the adapted weight's row has the norm "
          "{}; train it again",
          adapter_.file().path(), quote_text(tensors.magnitude->name), n, norms[n]));
    }
    gains.shift.resize(norms.size());
    if (const WeightSource& bias = layer[bias_of(role)]; bias.present()) {
      gains.shift = floats_of(checkpoint_.data(bias.tensor), bias.dtype);
      for (std::size_t n = 0; n < norms.size(); ++n) gains.shift[n] *= 1.0F - gains.gain[n];
    }
    return gains;
  }

 private:
  std::vector<float> half(const TensorInfo& tensor) const {
    return floats_of(adapter_.file().data(tensor), *weight_dtype(tensor));
  }

  // The norms of the rows of W + s B A.
  Result<std::vector<double>> row_norms(const LoraTensors& tensors,
                                        const WeightSource& weight) const {
    const std::vector<float> a = half(*tensors.a);
    const std::vector<float> b = half(*tensors.b);
    const auto rank = static_cast<std::size_t>(tensors.lora.rank);
    const auto width = static_cast<std::size_t>(weight.tensor.shape[0]);
    const auto depth = static_cast<std::size_t>(weight.tensor.shape[1]);
    const std::span<const std::byte> data = checkpoint_.data(weight.tensor);
    const std::size_t row_bytes = depth * size_of(weight.dtype);
    std::vector<double> norms(width);
    std::vector<float> row(depth);
    std::size_t values = 0;  // since the last check
    for (std::size_t n = 0; n < width; ++n) {
      values += depth * (1 + rank);
      if (stop_ && values >= kGainValues) {
        RETURN_IF_ERROR(stop_());
        values = 0;
      }
      convert_weights(data.data() + n * row_bytes, weight.dtype,
                      reinterpret_cast<std::byte*>(row.data()), DType::kF32, depth);
      for (std::size_t r = 0; r < rank; ++r) {
        add_scaled(tensors.lora.scale * b[n * rank + r], a.data() + r * depth, row);
      }
      norms[n] = norm_of(row);
    }
    return norms;
  }

  const AdapterTensors& adapter_;
  const Checkpoint& checkpoint_;
  const ModelWeightsPlan& plan_;
  const StopCheck& stop_;
};

}  // namespace

Result<std::vector<ModuleGains>> dora_gains(const AdapterTensors& adapter,
                                            const ModelConfig& config, const std::string& model,
                                            const StopCheck& stop) {
  std::vector<ModuleGains> gains(adapter.modules().size());
  if (!adapter.has_magnitudes()) return gains;
  if (model.empty() || config.packing) {
    return unsupported(fmt::format(
        "{}: DoRA (use_dora) needs base weights in F32, F16 or BF16, and this model's are not",
        adapter.file().path()));
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, open_checkpoint(model));
  ASSIGN_OR_RETURN(const ModelWeightsPlan plan,
                   resolve_weights(config, checkpoint, 0, config.num_layers));
  const GainReader reader(adapter, checkpoint, plan, stop);
  for (std::size_t i = 0; i < gains.size(); ++i) {
    ASSIGN_OR_RETURN(gains[i], reader.read(i));
  }
  return gains;
}

}  // namespace sluice
