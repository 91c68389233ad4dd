#include "model/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "checkpoint/quote_text.h"
#include "checkpoint/safetensors.h"
#include "model/gguf_names.h"
#include "model/model_config.h"
#include "model/rope.h"

namespace sluice {
namespace {

struct Architecture {
  std::string_view name;
  std::string_view hub_name;
};
constexpr std::array kArchitectures = {
    Architecture{"llama", "LlamaForCausalLM"},
    Architecture{"qwen2", "Qwen2ForCausalLM"},
    Architecture{"qwen3", "Qwen3ForCausalLM"},
};

// After "llama.". Each is read below, or has no effect.
constexpr std::array<std::string_view, 21> kKnownKeys = {"vocab_size",
                                                         "tensor_data_layout",
                                                         "context_length",
                                                         "embedding_length",
                                                         "block_count",
                                                         "feed_forward_length",
                                                         "expert_count",
                                                         "expert_used_count",
                                                         "attention.head_count",
                                                         "attention.head_count_kv",
                                                         "attention.key_length",
                                                         "attention.value_length",
                                                         "attention.layer_norm_rms_epsilon",
                                                         "rope.dimension_count",
                                                         "rope.freq_base",
                                                         "rope.scaling.type",
                                                         "rope.scaling.factor",
                                                         "rope.scaling.original_context_length",
                                                         "rope.scaling.finetuned",
                                                         "rope.scaling.yarn_beta_fast",
                                                         "rope.scaling.yarn_beta_slow"};

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// The keys of one architecture.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  Result<std::optional<std::uint64_t>> size(std::string_view name) const {
    return metadata_.whole_number(key(name));
  }
  Result<std::uint64_t> required_size(std::string_view name) const {
    ASSIGN_OR_RETURN(const auto value, size(name));
    if (!value) return missing(name);
    return *value;
  }
  Result<std::optional<double>> number(std::string_view name) const {
    ASSIGN_OR_RETURN(const auto value, metadata_.real_number(key(name)));
    if (value && !std::isfinite(*value)) return wrong(name, "is not finite");
    return value;
  }
  Result<std::optional<std::string_view>> text(std::string_view name) const {
    return metadata_.text(key(name));
  }

  Error missing(std::string_view name) const { return wrong(name, "is missing"); }
  Error wrong(std::string_view name, std::string_view message) const {
    return invalid_argument(fmt::format("metadata {}: {}", quote_text(key(name)), message));
  }

  Status check_known() const {
    for (const auto& entry : metadata_.entries()) {
      if (!entry.key.starts_with(prefix_)) continue;
      const std::string_view name = entry.key.substr(prefix_.size());
      if (std::find(kKnownKeys.begin(), kKnownKeys.end(), name) == kKnownKeys.end()) {
        return unsupported(fmt::format("metadata {}: is not supported and may change the result",
                                       quote_text(entry.key)));
      }
    }
    for (const char* name : {"expert_count", "expert_used_count"}) {
      ASSIGN_OR_RETURN(const auto count, size(name));
      if (count.value_or(0) != 0) {
        return unsupported(fmt::format("metadata {}: is {}; mixtures of experts are not supported",
                                       quote_text(key(name)), *count));
      }
    }
    return {};
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// Collects the fields of config.json. Names and texts are our own, so nothing needs escapes.
class ConfigText {
 public:
  template <class T>
  void value(std::string_view name, const T& value) {
    append_format(text_, "{}\"{}\": {}", text_.empty() ? "{\n  " : ",\n  ", name, value);
  }
  void text(std::string_view name, std::string_view text) {
    value(name, fmt::format("\"{}\"", text));
  }
  std::string finish() { return text_ + "\n}\n"; }

 private:
  std::string text_;
};

Result<Architecture> read_architecture(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "general.architecture";
  ASSIGN_OR_RETURN(const auto name, metadata.text(kKey));
  if (!name) return invalid_argument(fmt::format("metadata \"{}\": is missing", kKey));
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == *name) return architecture;
  }
  return unsupported(
      fmt::format("metadata \"{}\": {} is not supported; expected llama, qwen2 or "
                  "qwen3",
                  kKey, quote_text(*name)));
}

Status check_tensor_names(const GgufModel& model) {
  for (const GgufTensor& tensor : model.tensors()) {
    if (tensor.name == kRopeFactors || checkpoint_name(tensor.name)) continue;
    return unsupported(
        fmt::format("tensor {}: is not known and may change the result", quote_text(tensor.name)));
  }
  return {};
}

Result<std::int64_t> vocabulary_size(const GgufModel& model) {
  const GgufTensor* embedding = model.find("token_embd.weight");
  if (embedding == nullptr) return not_found("tensor \"token_embd.weight\" is missing");
  if (embedding->shape.size() != 2) {
    return invalid_argument(
        fmt::format("tensor \"token_embd.weight\" has shape {}; expected a matrix",
                    shape_text(embedding->shape)));
  }
  return embedding->shape.front();
}

struct Heads {
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
};

Result<Heads> read_heads(const ArchitectureKeys& keys, std::uint64_t hidden_size) {
  Heads heads;
  ASSIGN_OR_RETURN(heads.heads, keys.required_size("attention.head_count"));
  if (heads.heads == 0) return keys.wrong("attention.head_count", "is 0; expected at least 1");
  ASSIGN_OR_RETURN(const auto kv_heads, keys.size("attention.head_count_kv"));
  heads.kv_heads = kv_heads.value_or(heads.heads);
  ASSIGN_OR_RETURN(const auto key_length, keys.size("attention.key_length"));
  if (!key_length && hidden_size % heads.heads != 0) {
    return keys.wrong("attention.head_count",
                      fmt::format("{} does not divide the embedding length {}, and "
                                  "attention.key_length is not given",
                                  heads.heads, hidden_size));
  }
  heads.head_dim = key_length.value_or(hidden_size / heads.heads);
  for (const char* name : {"attention.value_length", "rope.dimension_count"}) {
    ASSIGN_OR_RETURN(const auto width, keys.size(name));
    if (width.value_or(heads.head_dim) == heads.head_dim) continue;
    return unsupported(fmt::format("metadata {}: is {}; expected {}, the width of a head",
                                   quote_text(keys.key(name)), *width, heads.head_dim));
  }
  return heads;
}

Result<std::vector<float>> read_rope_factors(const GgufModel& model, const GgufTensor& tensor,
                                             std::uint64_t head_dim) {
  const bool fits = tensor.type == GgufTensorType::kF32 && tensor.shape.size() == 1 &&
                    static_cast<std::uint64_t>(tensor.shape.front()) == head_dim / 2;
  if (!fits) {
    return unsupported(fmt::format("tensor \"{}\" is {} of shape {}; expected F32 of shape [{}]",
                                   kRopeFactors, gguf_tensor_type_name(tensor.type),
                                   shape_text(tensor.shape), head_dim / 2));
  }
  std::vector<float> factors(static_cast<std::size_t>(tensor.shape.front()));
  std::memcpy(factors.data(), model.data(tensor).data(), factors.size() * sizeof(float));
  return factors;
}

// Llama 3.1 and later divide each frequency by a factor that follows from four numbers. A GGUF file
// has the factors alone. Three of the numbers are the same in every published model, and the fourth
// is the largest factor: so the factors are recognized, and any others are refused.
Status write_llama3_scaling(const std::vector<float>& factors, std::uint64_t head_dim, double theta,
                            ConfigText& config) {
  RopeConfig rope;
  rope.theta = theta;
  rope.rotary_dim = static_cast<std::int32_t>(head_dim);
  const std::vector<float> plain = rope_inverse_frequencies(rope);
  rope.type = RopeType::kLlama3;
  rope.factor = factors.back();
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_positions = 8192;
  const bool possible = std::isfinite(rope.factor) && rope.factor >= 1.0;
  const std::vector<float> scaled = possible ? rope_inverse_frequencies(rope) : plain;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double expected = double{plain[i]} / double{scaled[i]};
    if (possible && std::abs(factors[i] - expected) <= 1e-4 * expected) continue;
    return unsupported(fmt::format(
        "tensor \"{}\": element {} is {}; expected the factors of Llama 3.1's rotary scaling",
        kRopeFactors, i, factors[i]));
  }
  config.value(
      "rope_scaling",
      fmt::format("{{\"rope_type\": \"llama3\", \"factor\": {}, \"low_freq_factor\": 1.0, "
                  "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}",
                  rope.factor));
  return {};
}

// As in llama.cpp, a factor without a type is linear, and 0 is no factor.
Result<std::string_view> scaling_type(const ArchitectureKeys& keys) {
  ASSIGN_OR_RETURN(const auto type, keys.text("rope.scaling.type"));
  if (type) return *type;
  ASSIGN_OR_RETURN(const auto factor, keys.number("rope.scaling.factor"));
  return factor.value_or(0) != 0 ? "linear" : "none";
}

// Writes rope_scaling from "rope.scaling.*".
Status write_stated_scaling(const ArchitectureKeys& keys, ConfigText& config) {
  ASSIGN_OR_RETURN(const std::string_view type, scaling_type(keys));
  if (type == "none") return {};
  if (type != "linear" && type != "yarn") {
    return unsupported(
        fmt::format("metadata {}: {} is not supported; expected none, linear or yarn",
                    quote_text(keys.key("rope.scaling.type")), quote_text(type)));
  }
  ASSIGN_OR_RETURN(const auto factor, keys.number("rope.scaling.factor"));
  if (!factor) return keys.missing("rope.scaling.factor");
  std::string scaling = fmt::format("{{\"rope_type\": \"{}\", \"factor\": {}", type, *factor);
  if (type == "yarn") {
    ASSIGN_OR_RETURN(const auto positions, keys.size("rope.scaling.original_context_length"));
    if (!positions) return keys.missing("rope.scaling.original_context_length");
    append_format(scaling, ", \"original_max_position_embeddings\": {}", *positions);
    for (const char* name : {"beta_fast", "beta_slow"}) {
      ASSIGN_OR_RETURN(const auto beta, keys.number(fmt::format("rope.scaling.yarn_{}", name)));
      if (beta) append_format(scaling, ", \"{}\": {}", name, *beta);
    }
  }
  config.value("rope_scaling", scaling + "}");
  return {};
}

Status write_rope(const GgufModel& model, const ArchitectureKeys& keys, std::uint64_t head_dim,
                  ConfigText& config) {
  ASSIGN_OR_RETURN(const auto stated_theta, keys.number("rope.freq_base"));
  const double theta = stated_theta.value_or(10000.0);
  config.value("rope_theta", theta);
  const GgufTensor* tensor = model.find(kRopeFactors);
  if (tensor == nullptr) return write_stated_scaling(keys, config);
  ASSIGN_OR_RETURN(const std::string_view type, scaling_type(keys));
  if (type != "none") {
    return unsupported(fmt::format("metadata {}: is {} beside tensor \"{}\"; expected one of them",
                                   quote_text(keys.key("rope.scaling.type")), quote_text(type),
                                   kRopeFactors));
  }
  if (head_dim < 2 || head_dim % 2 != 0 || head_dim > ModelLimits::kHeadDim || theta <= 1.0) {
    return keys.wrong("rope.dimension_count", "an even width of heads and a base above 1 expected");
  }
  ASSIGN_OR_RETURN(const auto factors, read_rope_factors(model, *tensor, head_dim));
  return write_llama3_scaling(factors, head_dim, theta, config);
}

// Control tokens with these texts end an answer in every model that has them. Files often name one
// of them alone: those of Llama 3 the end of text, while the model ends its turns with another.
constexpr std::array<std::string_view, 10> kEndTexts = {
    "<|eot_id|>", "<|eom_id|>",    "<|end_of_text|>",       "<|im_end|>", "<|endoftext|>",
    "<|end|>",    "<end_of_turn>", "<｜end▁of▁sentence｜>", "</s>",       "<EOT>"};

void add_token(std::uint64_t token, std::vector<std::uint64_t>& tokens) {
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
}

Status add_end_texts(const GgufMetadata& metadata, std::vector<std::uint64_t>& ends) {
  constexpr std::int64_t kControl = 3;
  ASSIGN_OR_RETURN(const auto texts, metadata.texts("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const auto types, metadata.integers("tokenizer.ggml.token_type"));
  if (!texts || !types || texts->size() != types->size()) return {};
  for (std::size_t i = 0; i < texts->size(); ++i) {
    if ((*types)[i] != kControl) continue;
    if (std::find(kEndTexts.begin(), kEndTexts.end(), (*texts)[i]) == kEndTexts.end()) continue;
    add_token(i, ends);
  }
  return {};
}

// The ends of a turn and of a message end an answer as the end of text does.
Status write_tokens(const GgufMetadata& metadata, ConfigText& config) {
  ASSIGN_OR_RETURN(const auto bos, metadata.whole_number("tokenizer.ggml.bos_token_id"));
  if (bos) config.value("bos_token_id", *bos);
  std::vector<std::uint64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(const auto token, metadata.whole_number(key));
    if (token) add_token(*token, ends);
  }
  RETURN_IF_ERROR(add_end_texts(metadata, ends));
  if (!ends.empty()) config.value("eos_token_id", fmt::format("[{}]", join(ends, ", ")));
  return {};
}

}  // namespace

Result<bool> gguf_pairs_rows(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const Architecture architecture, read_architecture(metadata));
  return architecture.name == "llama";
}

Result<std::string> gguf_config_json(const GgufModel& model) {
  ASSIGN_OR_RETURN(const Architecture architecture, read_architecture(model.metadata()));
  const ArchitectureKeys keys(model.metadata(), architecture.name);
  RETURN_IF_ERROR(keys.check_known());
  RETURN_IF_ERROR(check_tensor_names(model));
  ConfigText config;
  config.value("architectures", fmt::format("[\"{}\"]", architecture.hub_name));
  config.text("model_type", architecture.name);
  ASSIGN_OR_RETURN(const std::int64_t vocabulary, vocabulary_size(model));
  config.value("vocab_size", vocabulary);
  ASSIGN_OR_RETURN(const std::uint64_t hidden_size, keys.required_size("embedding_length"));
  config.value("hidden_size", hidden_size);
  ASSIGN_OR_RETURN(const std::uint64_t layers, keys.required_size("block_count"));
  config.value("num_hidden_layers", layers);
  ASSIGN_OR_RETURN(const std::uint64_t width, keys.required_size("feed_forward_length"));
  config.value("intermediate_size", width);
  ASSIGN_OR_RETURN(const std::uint64_t positions, keys.required_size("context_length"));
  config.value("max_position_embeddings", positions);
  ASSIGN_OR_RETURN(const Heads heads, read_heads(keys, hidden_size));
  config.value("num_attention_heads", heads.heads);
  config.value("num_key_value_heads", heads.kv_heads);
  config.value("head_dim", heads.head_dim);
  ASSIGN_OR_RETURN(const auto epsilon, keys.number("attention.layer_norm_rms_epsilon"));
  if (!epsilon) return keys.missing("attention.layer_norm_rms_epsilon");
  config.value("rms_norm_eps", *epsilon);
  config.value("tie_word_embeddings", model.find("output.weight") == nullptr);
  if (architecture.name != "qwen2") {
    config.value("attention_bias", model.find("blk.0.attn_q.bias") != nullptr);
  }
  config.value("mlp_bias", model.find("blk.0.ffn_gate.bias") != nullptr);
  RETURN_IF_ERROR(write_rope(model, keys, heads.head_dim, config));
  RETURN_IF_ERROR(write_tokens(model.metadata(), config));
  return config.finish();
}

}  // namespace sluice
