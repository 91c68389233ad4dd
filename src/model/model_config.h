// ModelConfig: the content of config.json, checked and resolved, as pure data. It drives the
// decoder layer by layer. load_model_config() reads the model's config.json (model_files.h), in the
// form of transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype). An
// unsupported field that changes the mathematics is refused with an error that names it; other
// unsupported fields are ignored. Values: plain; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "device/op_params.h"
#include "tensor/dtype.h"

namespace sluice {

enum class Family : std::uint8_t { kLlama, kMistral, kQwen2, kQwen3 };

enum class RopeType : std::uint8_t { kDefault, kLinear, kLlama3, kYarn };

// One rotary embedding. Fields that belong to another `type` are unused and keep their defaults.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  std::int32_t rotary_dim = 0;  // even, at most head_dim
  double factor = 1.0;          // linear, llama3, yarn: at least 1
  // llama3, yarn: the context the model was first trained with.
  std::int32_t original_max_positions = 0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  bool truncate = true;           // yarn: whole dimensions as bounds of the ramp
  // yarn: the factor of cosines and sines, resolved from attention_factor and mscale.
  double attention_scaling = 1.0;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct LayerConfig {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;  // divides num_heads
  std::int32_t head_dim = 0;      // need not be hidden_size / num_heads
  std::int32_t window = 0;        // positions that a query sees, its own included; 0 = all
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;  // gate, up and down
  bool qk_norm = false;   // RMS norm of each query and key head before the rotation
  std::int32_t intermediate_size = 0;
  GatedActivation activation = GatedActivation::kSilu;
  std::int32_t rope = 0;  // index into ModelConfig::ropes

  std::int32_t q_width() const { return num_heads * head_dim; }
  std::int32_t kv_width() const { return num_kv_heads * head_dim; }
  // The factor of the attention scores.
  float attention_scale() const;

  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// The scaling of a checkpoint's matrices of codes (FP8 or INT8): one factor for block_rows by
// block_cols codes; 0 means all rows or columns. The dtypes in the files determine which matrices
// have codes.
struct CodeScaling {
  std::int32_t block_rows = 0;
  std::int32_t block_cols = 0;
  DType codes = DType::kF8E4M3;

  friend bool operator==(const CodeScaling&, const CodeScaling&) = default;
};

// The form of a checkpoint's integer matrices whose products take inputs of 16 bits
// (packed_matrix.h). The names in the files determine which matrices have this form.
enum class Packing : std::uint8_t {
  kGptq,    // zero points are stored minus 1
  kGptqV2,  // as they are
  kAwq,
  kCompressed,  // compressed-tensors, "pack-quantized"
  kPlainInt8,   // compressed-tensors, "int-quantized"
};
struct WeightPacking {
  Packing packing = Packing::kGptq;
  std::int32_t bits = 4;        // of a code: 4 or 8
  std::int32_t group_size = 0;  // columns that share a scale; 0 means all
  bool zero_points = true;      // false: the checkpoint's zero points are not used

  friend bool operator==(const WeightPacking&, const WeightPacking&) = default;
};

struct ModelConfig {
  Family family = Family::kLlama;
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_layers = 0;
  std::int32_t max_position_embeddings = 0;
  bool tie_embeddings = false;  // the output projection is the embedding table
  float norm_epsilon = 0.0F;
  std::optional<TokenId> bos_token;
  std::vector<TokenId>
      eos_tokens;  // of config.json; GenerationDefaults::eos_tokens replace them if present
  std::optional<DType> dtype;            // as config.json states; the files override it
  std::optional<CodeScaling> scaling;    // a checkpoint with matrices of codes
  std::optional<WeightPacking> packing;  // a checkpoint with packed matrices
  std::vector<LayerConfig> layers;       // num_layers
  std::vector<RopeConfig> ropes;         // at least one

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Upper limits of sizes; a config.json with a larger size is refused.
struct ModelLimits {
  static constexpr std::int64_t kVocabSize = std::int64_t{1} << 24;
  static constexpr std::int64_t kHiddenSize = std::int64_t{1} << 17;
  static constexpr std::int64_t kIntermediateSize = std::int64_t{1} << 20;
  static constexpr std::int64_t kLayers = 1024;
  static constexpr std::int64_t kHeads = 1024;
  static constexpr std::int64_t kHeadDim = 1024;
  static constexpr std::int64_t kPositions = std::int64_t{1} << 27;
  static constexpr std::uint64_t kConfigBytes = std::uint64_t{4} << 20;
};

Result<ModelConfig> load_model_config(const std::string& directory);

// The parser alone. Errors name fields as "config.json: field".
Result<ModelConfig> parse_model_config(std::string_view json);

}  // namespace sluice
