#include "model/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "checkpoint/quote_text.h"
#include "model/packed_checkpoint.h"

namespace sluice {
namespace {

// A dimension of a weight, as a function of the configuration.
enum class Dim : std::uint8_t { kNone, kVocab, kHidden, kQuery, kKeyValue, kHead, kFeedForward };

// When a model has a weight.
enum class Present : std::uint8_t { kAlways, kQkvBias, kOBias, kMlpBias, kQkNorm };

struct WeightSpec {
  WeightRole role;
  std::string_view name;  // {} is the layer
  Dim rows;
  Dim columns;  // kNone: a vector
  Sharding sharding;
  Present present;
};

using enum Dim;
using enum Sharding;

// Families derived from Llama have the same names of weights; LayerConfig says which weights a
// model has. In the order of WeightRole.
using WeightTable = std::array<WeightSpec, kNumWeightRoles>;
constexpr WeightTable kLlamaTable = {{
    {WeightRole::kEmbedding, "model.embed_tokens.weight", kVocab, kHidden, kVocabulary,
     Present::kAlways},
    {WeightRole::kFinalNorm, "model.norm.weight", kHidden, kNone, kReplicated, Present::kAlways},
    {WeightRole::kLmHead, "lm_head.weight", kVocab, kHidden, kVocabulary, Present::kAlways},
    {WeightRole::kInputNorm, "model.layers.{}.input_layernorm.weight", kHidden, kNone, kReplicated,
     Present::kAlways},
    {WeightRole::kQ, "model.layers.{}.self_attn.q_proj.weight", kQuery, kHidden, kColumn,
     Present::kAlways},
    {WeightRole::kK, "model.layers.{}.self_attn.k_proj.weight", kKeyValue, kHidden, kColumn,
     Present::kAlways},
    {WeightRole::kV, "model.layers.{}.self_attn.v_proj.weight", kKeyValue, kHidden, kColumn,
     Present::kAlways},
    {WeightRole::kQBias, "model.layers.{}.self_attn.q_proj.bias", kQuery, kNone, kColumn,
     Present::kQkvBias},
    {WeightRole::kKBias, "model.layers.{}.self_attn.k_proj.bias", kKeyValue, kNone, kColumn,
     Present::kQkvBias},
    {WeightRole::kVBias, "model.layers.{}.self_attn.v_proj.bias", kKeyValue, kNone, kColumn,
     Present::kQkvBias},
    {WeightRole::kQNorm, "model.layers.{}.self_attn.q_norm.weight", kHead, kNone, kReplicated,
     Present::kQkNorm},
    {WeightRole::kKNorm, "model.layers.{}.self_attn.k_norm.weight", kHead, kNone, kReplicated,
     Present::kQkNorm},
    {WeightRole::kO, "model.layers.{}.self_attn.o_proj.weight", kHidden, kQuery, kRow,
     Present::kAlways},
    // Biases of row-sharded weights are whole on every rank and added once, after the reduction.
    {WeightRole::kOBias, "model.layers.{}.self_attn.o_proj.bias", kHidden, kNone, kReplicated,
     Present::kOBias},
    {WeightRole::kPostAttentionNorm, "model.layers.{}.post_attention_layernorm.weight", kHidden,
     kNone, kReplicated, Present::kAlways},
    {WeightRole::kGate, "model.layers.{}.mlp.gate_proj.weight", kFeedForward, kHidden, kColumn,
     Present::kAlways},
    {WeightRole::kUp, "model.layers.{}.mlp.up_proj.weight", kFeedForward, kHidden, kColumn,
     Present::kAlways},
    {WeightRole::kDown, "model.layers.{}.mlp.down_proj.weight", kHidden, kFeedForward, kRow,
     Present::kAlways},
    {WeightRole::kGateBias, "model.layers.{}.mlp.gate_proj.bias", kFeedForward, kNone, kColumn,
     Present::kMlpBias},
    {WeightRole::kUpBias, "model.layers.{}.mlp.up_proj.bias", kFeedForward, kNone, kColumn,
     Present::kMlpBias},
    {WeightRole::kDownBias, "model.layers.{}.mlp.down_proj.bias", kHidden, kNone, kReplicated,
     Present::kMlpBias},
}};

constexpr bool in_role_order(const WeightTable& table) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].role) != i) return false;
  }
  return true;
}
static_assert(in_role_order(kLlamaTable));

// A family whose checkpoints use other names needs its own table.
const WeightTable& table_of(Family family) {
  switch (family) {
    case Family::kLlama:
    case Family::kMistral:
    case Family::kQwen2:
    case Family::kQwen3: break;
  }
  return kLlamaTable;
}

const WeightSpec& spec_of(Family family, WeightRole role) {
  return table_of(family)[static_cast<std::size_t>(role)];
}

bool is_of_layer(WeightRole role) { return role > WeightRole::kLmHead; }

bool has_weight(const LayerConfig& layer, Present present) {
  switch (present) {
    case Present::kAlways: return true;
    case Present::kQkvBias: return layer.qkv_bias;
    case Present::kOBias: return layer.o_bias;
    case Present::kMlpBias: return layer.mlp_bias;
    case Present::kQkNorm: return layer.qk_norm;
  }
  return false;
}

std::int64_t size_of_dim(const ModelConfig& config, const LayerConfig& layer, Dim dim) {
  switch (dim) {
    case kNone: return 0;
    case kVocab: return config.vocab_size;
    case kHidden: return config.hidden_size;
    case kQuery: return layer.q_width();
    case kKeyValue: return layer.kv_width();
    case kHead: return layer.head_dim;
    case kFeedForward: return layer.intermediate_size;
  }
  return 0;
}

// Finds weights one by one and checks that all matrices have one dtype.
class Resolver {
 public:
  Resolver(const ModelConfig& config, const Checkpoint& checkpoint)
      : config_(config), checkpoint_(checkpoint) {}

  Result<WeightSource> resolve(WeightRole role, std::int32_t layer) {
    const std::string name = weight_name(config_.family, role, layer);
    const TensorInfo* tensor = checkpoint_.find(name);
    const std::vector<std::int64_t> shape = weight_shape(config_, role, layer);
    if (tensor == nullptr) {
      RETURN_IF_ERROR(check_unpacked(name));
      return not_found(fmt::format("{}: tensor {} is missing; expected shape {}",
                                   checkpoint_.directory(), quote_text(name), shape_text(shape)));
    }
    const std::string& path = checkpoint_.file_of(*tensor).path();
    if (tensor->shape != shape) {
      return invalid_argument(fmt::format("{}: tensor {} has shape {}; config.json asks for {}",
                                          path, quote_text(name), shape_text(tensor->shape),
                                          shape_text(shape)));
    }
    auto dtype = weight_dtype(*tensor);
    if (!dtype) return with_context(path, dtype.error());
    WeightSource source;
    source.tensor = *tensor;
    source.dtype = *dtype;
    source.sharding = weight_sharding(config_.family, role);
    if (has_scales(*dtype)) {
      auto scaled = find_scales(role, source);
      if (!scaled) return with_context(path, scaled.error());
      return source;
    }
    if (is_blocks(*dtype)) {
      const TensorInfo* order = checkpoint_.find(name + std::string(kOrderSuffix));
      if (order != nullptr && order->file == tensor->file) source.order = *order;
      if (shape.size() > 1) return source;
      return unsupported(fmt::format("{}: tensor {} is {}; expected F32, F16 or BF16 for a vector",
                                     path, quote_text(name), dtype_name(*dtype)));
    }
    if (shape.size() > 1 && !matrix_dtype_) {
      matrix_dtype_ = *dtype;
      matrix_name_ = name;
    }
    RETURN_IF_ERROR(shape.size() > 1 ? check_matrix(source, path) : Status());
    if (shape.size() == 1 && *dtype != DType::kF32) vectors_.push_back(source);
    return source;
  }

  Result<DType> common_dtype() const {
    // There may be only matrices in blocks, and in a middle stage only matrices of codes.
    if (!matrix_dtype_) return config_.dtype.value_or(DType::kBF16);
    for (const WeightSource& vector : vectors_) {
      if (vector.dtype != *matrix_dtype_) {
        return unsupported(fmt::format("{}: tensor {} is {}; expected {}, as {}, or f32",
                                       checkpoint_.file_of(vector.tensor).path(),
                                       quote_text(vector.tensor.name), dtype_name(vector.dtype),
                                       dtype_name(*matrix_dtype_), quote_text(matrix_name_)));
      }
    }
    return *matrix_dtype_;
  }

 private:
  // Old checkpoints of GPTQ describe their matrices in another file.
  Status check_unpacked(const std::string& name) const {
    const std::string module = name.substr(0, name.rfind('.'));
    for (const char* part : {".qweight", ".weight_packed"}) {
      if (checkpoint_.find(module + part) == nullptr) continue;
      return unsupported(fmt::format(
          "{}: tensor {} is quantized, but config.json: quantization_config does not say how; add "
          "it (quant_method, bits, group_size), or take a newer checkpoint",
          checkpoint_.directory(), quote_text(module + part)));
    }
    return {};
  }

  Status find_scales(WeightRole role, WeightSource& source) const {
    const TensorInfo& matrix = source.tensor;
    const std::string_view stored = stored_dtype_name(matrix.dtype);
    if (!is_of_layer(role) || matrix.shape.size() != 2) {
      return unsupported(
          fmt::format("tensor {} is {}; expected only q, k, v, o, gate, up and down "
                      "projections in {}, all else in F32, F16 or BF16",
                      quote_text(matrix.name), stored, dtype_name(source.dtype)));
    }
    if (!config_.scaling || config_.scaling->codes != source.dtype) {
      return invalid_argument(
          fmt::format("tensor {} is {}, but config.json has no quantization_config that says "
                      "how it is scaled",
                      quote_text(matrix.name), stored));
    }
    const TensorInfo* scales = checkpoint_.find(matrix.name + "_scale_inv");
    if (scales == nullptr) scales = checkpoint_.find(matrix.name + "_scale");
    if (scales == nullptr) {
      return not_found(fmt::format("tensor {} or {} is missing: the scales of an {} matrix",
                                   quote_text(matrix.name + "_scale_inv"),
                                   quote_text(matrix.name + "_scale"), stored));
    }
    ASSIGN_OR_RETURN(const DType dtype, weight_dtype(*scales));
    if (!is_float(dtype)) {
      return unsupported(fmt::format("tensor {}: scales in {}; expected F32, F16 or BF16",
                                     quote_text(scales->name), stored_dtype_name(scales->dtype)));
    }
    source.scales = *scales;
    source.block_rows = block_size(config_.scaling->block_rows, matrix.shape[0]);
    source.block_cols = block_size(config_.scaling->block_cols, matrix.shape[1]);
    return check_scales(source);
  }

  // One factor for the whole matrix may be a scalar, and one for each row a vector.
  static Status check_scales(const WeightSource& source) {
    const auto blocks = [](std::int64_t n, std::int64_t of) { return (n + of - 1) / of; };
    const std::int64_t rows = blocks(source.tensor.shape[0], source.block_rows);
    const std::int64_t cols = blocks(source.tensor.shape[1], source.block_cols);
    const std::vector<std::int64_t>& shape = source.scales.shape;
    const bool fits = shape == std::vector<std::int64_t>{rows, cols} ||
                      (cols == 1 && shape == std::vector<std::int64_t>{rows}) ||
                      (cols == 1 && rows == 1 && shape.empty());
    if (fits) return {};
    return invalid_argument(fmt::format(
        "tensor {} has shape {}; blocks of {} by {} (config.json: quantization_config) make [{}, "
        "{}] of {}",
        quote_text(source.scales.name), shape_text(shape), source.block_rows, source.block_cols,
        rows, cols, shape_text(source.tensor.shape)));
  }

  // 0 means all. A block larger than the matrix is clamped to the matrix's size.
  static std::int32_t block_size(std::int32_t stated, std::int64_t dim) {
    return static_cast<std::int32_t>(stated == 0 ? dim : std::min<std::int64_t>(stated, dim));
  }

  Status check_matrix(const WeightSource& source, const std::string& path) const {
    if (source.dtype == *matrix_dtype_) return {};
    return unsupported(fmt::format("{}: tensor {} is {}, but {} is {}; expected one dtype for all",
                                   path, quote_text(source.tensor.name), dtype_name(source.dtype),
                                   quote_text(matrix_name_), dtype_name(*matrix_dtype_)));
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  std::optional<DType> matrix_dtype_;
  std::string matrix_name_;            // the matrix that set it
  std::vector<WeightSource> vectors_;  // those that are not F32
};

// Embedding and output projection. A checkpoint may hold one matrix for both. If it holds both,
// both are used, which is correct whether their values agree or not.
Status resolve_ends(const ModelConfig& config, const Checkpoint& checkpoint, bool first, bool last,
                    Resolver& resolver, ModelWeightsPlan& plan) {
  const std::string head_name = weight_name(config.family, WeightRole::kLmHead, 0);
  const bool has_head = checkpoint.find(head_name) != nullptr;
  const bool has_embedding =
      checkpoint.find(weight_name(config.family, WeightRole::kEmbedding, 0)) != nullptr;
  const bool head_serves_both = config.tie_embeddings && has_head && !has_embedding;
  plan.tied = !has_head || head_serves_both;
  if (!has_head && !config.tie_embeddings) {
    log_warning(
        fmt::format("{}: {} is missing although config.json: tie_word_embeddings is false; the "
                    "embedding is used for it",
                    checkpoint.directory(), head_name));
  }
  if (first || (last && plan.tied)) {
    const WeightRole role = head_serves_both ? WeightRole::kLmHead : WeightRole::kEmbedding;
    ASSIGN_OR_RETURN(plan.embedding, resolver.resolve(role, 0));
  }
  if (last) {
    ASSIGN_OR_RETURN(plan.final_norm, resolver.resolve(WeightRole::kFinalNorm, 0));
    plan.lm_head = plan.embedding;
    if (!plan.tied) {
      ASSIGN_OR_RETURN(plan.lm_head, resolver.resolve(WeightRole::kLmHead, 0));
    }
  }
  return {};
}

// The inputs of a product are quantized for all of its matrices or for none.
Status check_products(const Checkpoint& checkpoint, const LayerWeightSources& layer) {
  using enum WeightRole;
  for (const auto& [first, second] :
       {std::pair{kQ, kK}, std::pair{kQ, kV}, std::pair{kGate, kUp}}) {
    const WeightSource& a = layer[first];
    const WeightSource& b = layer[second];
    if ((a.dtype == DType::kI8) == (b.dtype == DType::kI8)) continue;
    return unsupported(fmt::format(
        "{}: tensor {} is {}, but {} is {}; expected q, k and v, or gate and up, all in int8 or "
        "none",
        checkpoint.file_of(b.tensor).path(), quote_text(b.tensor.name), dtype_name(b.dtype),
        quote_text(a.tensor.name), dtype_name(a.dtype)));
  }
  return {};
}

// Finds the type of most blocks. Types of blocks may be mixed, but the decoder's products take
// inputs of one type, and blocks take BF16.
Status find_blocks(const Checkpoint& checkpoint, ModelWeightsPlan& plan) {
  std::map<DType, std::uint64_t> bytes;
  const WeightSource* other = nullptr;  // a matrix whose products take no BF16
  const auto visit = [&](const WeightSource& source) {
    if (source.tensor.shape.size() != 2) return;
    if (is_blocks(source.dtype)) bytes[source.dtype] += source.tensor.bytes;
    if (!is_blocks(source.dtype) && source.dtype != DType::kBF16) other = &source;
  };
  for (const LayerWeightSources& layer : plan.layers) {
    for (const WeightSource& source : layer.weights) visit(source);
  }
  // The head's inputs may have a type of their own.
  if (is_blocks(plan.lm_head.dtype)) visit(plan.lm_head);
  if (bytes.empty()) return {};
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  plan.blocks = most->first;
  if (other == nullptr) return {};
  return unsupported(
      fmt::format("{}: tensor {} is {} beside matrices in {}; expected blocks or BF16 "
                  "for all matrices but the embedding and lm_head",
                  checkpoint.file_of(other->tensor).path(), quote_text(other->tensor.name),
                  dtype_name(other->dtype), dtype_name(most->first)));
}

// Warns about biases and norms that the file has and the configuration does not use. transformers
// ignores them too, but the model was probably trained with them.
void warn_about_unused(const ModelConfig& config, const Checkpoint& checkpoint) {
  for (const WeightSpec& spec : table_of(config.family)) {
    if (spec.present == Present::kAlways || has_weight(config.layers.front(), spec.present)) {
      continue;
    }
    const std::string name = weight_name(config.family, spec.role, 0);
    if (checkpoint.find(name) != nullptr) {
      log_warning(fmt::format("{}: tensor {} is not used: config.json does not ask for it",
                              checkpoint.directory(), quote_text(name)));
    }
  }
}

// Warns about layers that config.json leaves out: such a model runs but produces nonsense.
void warn_about_unused_layers(const ModelConfig& config, const Checkpoint& checkpoint) {
  std::int32_t layers = config.num_layers;
  while (layers < ModelLimits::kLayers &&
         checkpoint.find(weight_name(config.family, WeightRole::kInputNorm, layers)) != nullptr) {
    ++layers;
  }
  if (layers == config.num_layers) return;
  log_warning(fmt::format(
      "{}: the checkpoint has {} layers, config.json: num_hidden_layers is {}; the last {} are not "
      "used, and the model's answers are probably wrong",
      checkpoint.directory(), layers, config.num_layers, layers - config.num_layers));
}

}  // namespace

Sharding weight_sharding(Family family, WeightRole role) { return spec_of(family, role).sharding; }

std::string weight_name(Family family, WeightRole role, std::int32_t layer) {
  return fmt::format(fmt::runtime(spec_of(family, role).name), layer);
}

std::vector<std::int64_t> weight_shape(const ModelConfig& config, WeightRole role,
                                       std::int32_t layer) {
  const WeightSpec& spec = spec_of(config.family, role);
  CHECK(layer >= 0 && static_cast<std::size_t>(layer) < config.layers.size());
  const LayerConfig& layer_config = config.layers[static_cast<std::size_t>(layer)];
  if (!has_weight(layer_config, spec.present)) return {};
  std::vector<std::int64_t> shape{size_of_dim(config, layer_config, spec.rows)};
  if (spec.columns != kNone) shape.push_back(size_of_dim(config, layer_config, spec.columns));
  return shape;
}

Result<ModelWeightsPlan> resolve_weights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         std::int32_t first, std::int32_t last) {
  CHECK(0 <= first && first < last && last <= config.num_layers);
  ModelWeightsPlan plan;
  plan.first_layer = first;
  plan.last_layer = last;
  Resolver resolver(config, checkpoint);
  RETURN_IF_ERROR(
      resolve_ends(config, checkpoint, first == 0, last == config.num_layers, resolver, plan));
  for (std::int32_t i = first; i < last; ++i) {
    LayerWeightSources& sources = plan.layers.emplace_back();
    for (const WeightSpec& spec : table_of(config.family)) {
      const LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
      if (!is_of_layer(spec.role) || !has_weight(layer, spec.present)) continue;
      WeightSource& source = sources.weights[static_cast<std::size_t>(spec.role)];
      ASSIGN_OR_RETURN(source, resolver.resolve(spec.role, i));
      if (has_scales(source.dtype)) plan.codes = source.dtype;
    }
    RETURN_IF_ERROR(check_products(checkpoint, sources));
  }
  ASSIGN_OR_RETURN(plan.dtype, resolver.common_dtype());
  RETURN_IF_ERROR(find_blocks(checkpoint, plan));
  warn_about_unused(config, checkpoint);
  warn_about_unused_layers(config, checkpoint);
  return plan;
}

}  // namespace sluice
