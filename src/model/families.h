// A model family is data: a table with each logical weight of a decoder, its name in the
// checkpoint, its shape, and how tensor parallelism splits it. resolve_weights() checks a
// checkpoint against the table, for all layers or for the layers [first, last) of a pipeline stage.
// Values: plain; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace sluice {

enum class WeightRole : std::uint8_t {
  // Weights of the model.
  kEmbedding,
  kFinalNorm,
  kLmHead,
  // Weights of a layer.
  kInputNorm,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kO,
  kOBias,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
};
inline constexpr std::size_t kNumWeightRoles = 21;

// How a weight [N, K] (or vector [N]) is split over the ranks of a tensor-parallel group.
enum class Sharding : std::uint8_t {
  kReplicated,  // every rank holds all of it
  kColumn,      // rows of [N, K], elements of [N]: each rank computes a part of the output
  kRow,         // along K: each rank computes a partial sum, all_reduce follows
  kVocabulary,  // rows of [V, hidden]
};

// A logical weight and its place in the files. `tensor.name` is empty if the model does not have
// the weight.
struct WeightSource {
  TensorInfo tensor;
  DType dtype = DType::kF32;
  Sharding sharding = Sharding::kReplicated;
  // The scales of a matrix in FP8 or INT8, in F32, F16 or BF16: one for block_rows by block_cols
  // codes.
  TensorInfo scales;
  std::int32_t block_rows = 0;
  std::int32_t block_cols = 0;
  // Named for a matrix in blocks whose columns are in another order (packed_checkpoint.h).
  TensorInfo order;
  bool present() const { return !tensor.name.empty(); }
};

struct LayerWeightSources {
  std::array<WeightSource, kNumWeightRoles> weights;  // by WeightRole; the model's stay empty
  const WeightSource& operator[](WeightRole role) const {
    return weights[static_cast<std::size_t>(role)];
  }
};

// Pure data: the place of each weight in the files.
struct ModelWeightsPlan {
  std::int32_t first_layer = 0;
  std::int32_t last_layer = 0;  // exclusive
  // The dtype of all matrices that are neither in codes nor in blocks; norms and biases may be F32
  // instead. BF16 if there is none.
  DType dtype = DType::kF32;
  // The type of blocks of most matrices, if some are in blocks. All products then take BF16.
  std::optional<DType> blocks;
  std::optional<DType> codes;              // some of the layers' matrices are in FP8 or INT8
  bool tied = false;                       // lm_head is the embedding
  WeightSource embedding;                  // first stage; also the last one when tied
  WeightSource final_norm;                 // last stage
  WeightSource lm_head;                    // last stage; equal to `embedding` when tied
  std::vector<LayerWeightSources> layers;  // last_layer - first_layer, index 0 = first_layer

  const LayerWeightSources& layer(std::int32_t index) const {
    return layers[static_cast<std::size_t>(index - first_layer)];
  }
};

// The checkpoint's name of a weight; `layer` is unused for the model's own.
std::string weight_name(Family family, WeightRole role, std::int32_t layer);

// The required shape of a weight; empty when the model does not have the weight.
std::vector<std::int64_t> weight_shape(const ModelConfig& config, WeightRole role,
                                       std::int32_t layer);

Sharding weight_sharding(Family family, WeightRole role);

// Finds and checks every weight of layers [first, last). kNotFound for a missing tensor,
// kInvalidArgument for a wrong shape, kUnsupported for dtypes. A warning names tensors and layers
// that the configuration leaves out. REQUIRES: 0 <= first < last <= config.num_layers.
Result<ModelWeightsPlan> resolve_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         std::int32_t first, std::int32_t last);

}  // namespace sluice
