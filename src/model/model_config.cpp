#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/quote_text.h"
#include "model/json_fields.h"
#include "model/model_files.h"
#include "model/quantization_fields.h"
#include "model/refused_fields.h"
#include "model/rope_fields.h"

namespace sluice {
namespace {

// The differences between families in reading config.json. The defaults are those of transformers,
// for files that rely on them.
struct FamilyRules {
  Family family;
  std::string_view model_type;
  std::string_view architecture;
  std::int32_t default_kv_heads;  // 0 = as many as heads
  std::int32_t default_head_dim;  // 0 = hidden_size / num_attention_heads
  bool qkv_bias_always;
  bool reads_attention_bias;  // for query, key, value and output
  bool reads_mlp_bias;
  bool qk_norm;
};
constexpr std::array kFamilies = {
    FamilyRules{Family::kLlama, "llama", "LlamaForCausalLM", 0, 0, false, true, true, false},
    FamilyRules{Family::kMistral, "mistral", "MistralForCausalLM", 8, 0, false, false, false,
                false},
    FamilyRules{Family::kQwen2, "qwen2", "Qwen2ForCausalLM", 0, 0, true, false, false, false},
    FamilyRules{Family::kQwen3, "qwen3", "Qwen3ForCausalLM", 0, 128, false, true, false, true},
};

// "LlamaModel" is "LlamaForCausalLM" saved without its head, as models of embeddings are.
bool names_family(std::string_view architecture, const FamilyRules& rules) {
  constexpr std::string_view kWithHead = "ForCausalLM";
  constexpr std::string_view kWithoutHead = "Model";
  if (architecture == rules.architecture) return true;
  if (!architecture.ends_with(kWithoutHead)) return false;
  architecture.remove_suffix(kWithoutHead.size());
  return rules.architecture.substr(0, rules.architecture.size() - kWithHead.size()) == architecture;
}

std::string supported_architectures() {
  std::string text;
  for (const FamilyRules& rules : kFamilies) {
    if (!text.empty()) text += ", ";
    text += rules.architecture;
  }
  return text;
}

Result<FamilyRules> read_family(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto architectures, fields.strings("architectures"));
  ASSIGN_OR_RETURN(const auto model_type, fields.string("model_type"));
  if (architectures && !architectures->empty()) {
    for (const FamilyRules& rules : kFamilies) {
      if (!names_family(architectures->front(), rules)) continue;
      if (model_type && *model_type != rules.model_type) {
        return fields.error("model_type", fmt::format("{} does not fit architecture {}; expected "
                                                      "{}",
                                                      quote_text(*model_type), rules.architecture,
                                                      quote_text(rules.model_type)));
      }
      return rules;
    }
    return fields.refusal("architectures", fmt::format("{} is not supported; expected one of {}",
                                                       quote_text(architectures->front()),
                                                       supported_architectures()));
  }
  if (!model_type) {
    return fields.error("architectures",
                        fmt::format("is missing; expected one of {}", supported_architectures()));
  }
  for (const FamilyRules& rules : kFamilies) {
    if (rules.model_type == *model_type) return rules;
  }
  return fields.refusal("model_type",
                        fmt::format("{} is not supported; expected llama, mistral, qwen2 or qwen3",
                                    quote_text(*model_type)));
}

Result<std::int32_t> read_size(const JsonFields& fields, std::string_view name, std::int64_t max) {
  ASSIGN_OR_RETURN(const std::int64_t value, fields.required_integer(name, 1, max));
  return static_cast<std::int32_t>(value);
}

Status read_heads(const JsonFields& fields, const FamilyRules& rules, std::int32_t hidden_size,
                  LayerConfig& layer) {
  ASSIGN_OR_RETURN(layer.num_heads, read_size(fields, "num_attention_heads", ModelLimits::kHeads));
  ASSIGN_OR_RETURN(const auto kv_heads,
                   fields.integer("num_key_value_heads", 1, ModelLimits::kHeads));
  // null means "as many as heads" in every family; an absent field takes the family's default.
  layer.num_kv_heads = layer.num_heads;
  if (kv_heads) {
    layer.num_kv_heads = static_cast<std::int32_t>(*kv_heads);
  } else if (rules.default_kv_heads != 0 && !fields.is_null("num_key_value_heads")) {
    layer.num_kv_heads = rules.default_kv_heads;
  }
  if (layer.num_heads % layer.num_kv_heads != 0) {
    return fields.error("num_key_value_heads",
                        fmt::format("{} does not divide num_attention_heads {}", layer.num_kv_heads,
                                    layer.num_heads));
  }
  ASSIGN_OR_RETURN(const auto head_dim, fields.integer("head_dim", 1, ModelLimits::kHeadDim));
  if (head_dim) {
    layer.head_dim = static_cast<std::int32_t>(*head_dim);
    return {};
  }
  if (rules.default_head_dim != 0) {
    layer.head_dim = rules.default_head_dim;
    return {};
  }
  if (hidden_size % layer.num_heads != 0) {
    return fields.error("hidden_size",
                        fmt::format("{} is not a multiple of num_attention_heads {}, and head_dim "
                                    "is not given",
                                    hidden_size, layer.num_heads));
  }
  layer.head_dim = hidden_size / layer.num_heads;
  if (layer.head_dim > ModelLimits::kHeadDim) {
    return fields.error(
        "hidden_size",
        fmt::format("{} over {} heads makes heads of {}; the limit is {}", hidden_size,
                    layer.num_heads, layer.head_dim, ModelLimits::kHeadDim));
  }
  return {};
}

Status read_biases_and_activation(const JsonFields& fields, const FamilyRules& rules,
                                  LayerConfig& layer) {
  ASSIGN_OR_RETURN(const bool attention_bias, fields.boolean("attention_bias", false));
  ASSIGN_OR_RETURN(const bool mlp_bias, fields.boolean("mlp_bias", false));
  if (attention_bias && !rules.reads_attention_bias && !rules.qkv_bias_always) {
    return fields.refusal("attention_bias",
                          fmt::format("true is not supported in family {}", rules.model_type));
  }
  if (mlp_bias && !rules.reads_mlp_bias) {
    return fields.refusal("mlp_bias",
                          fmt::format("true is not supported in family {}", rules.model_type));
  }
  for (const char* name : {"use_qk_norm", "qk_norm", "qk_layernorm"}) {
    if (!fields.has(name)) continue;
    ASSIGN_OR_RETURN(const bool wanted, fields.boolean(name, false));
    if (wanted != rules.qk_norm) {
      return fields.refusal(
          name, fmt::format("{} is not supported in family {}", wanted, rules.model_type));
    }
  }
  layer.qkv_bias = rules.qkv_bias_always || (attention_bias && rules.reads_attention_bias);
  layer.o_bias = attention_bias && rules.reads_attention_bias;
  layer.mlp_bias = mlp_bias;
  layer.qk_norm = rules.qk_norm;
  ASSIGN_OR_RETURN(const auto activation, fields.string("hidden_act"));
  if (!activation || *activation == "silu" || *activation == "swish") {
    layer.activation = GatedActivation::kSilu;
  } else if (*activation == "gelu_pytorch_tanh") {
    layer.activation = GatedActivation::kGeluTanh;
  } else {
    return fields.refusal("hidden_act",
                          fmt::format("{} is not supported; expected silu or gelu_pytorch_tanh",
                                      quote_text(*activation)));
  }
  return {};
}

// layer_types, when given, or none.
Result<std::optional<std::vector<bool>>> read_sliding_layers(const JsonFields& fields,
                                                             std::int32_t num_layers) {
  ASSIGN_OR_RETURN(const auto types, fields.strings("layer_types"));
  if (!types) return std::optional<std::vector<bool>>();
  if (types->size() != static_cast<std::size_t>(num_layers)) {
    return fields.error("layer_types", fmt::format("{} entries; expected num_hidden_layers = {}",
                                                   types->size(), num_layers));
  }
  std::vector<bool> sliding;
  for (const std::string& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return fields.refusal("layer_types", fmt::format("{} is not supported; expected "
                                                       "full_attention or sliding_attention",
                                                       quote_text(type)));
    }
    sliding.push_back(type == "sliding_attention");
  }
  return std::optional(std::move(sliding));
}

// Llama has no window, and Mistral has one for every layer; a file that says otherwise describes
// another architecture.
Status check_layer_types(const JsonFields& fields, const std::optional<std::vector<bool>>& given,
                         bool sliding) {
  if (given && std::find(given->begin(), given->end(), !sliding) != given->end()) {
    return fields.refusal("layer_types",
                          fmt::format("expected {} in every layer for this model",
                                      sliding ? "sliding_attention" : "full_attention"));
  }
  return {};
}

Status apply_qwen_windows(const JsonFields& fields, std::int32_t window,
                          const std::optional<std::vector<bool>>& given,
                          std::vector<LayerConfig>& layers) {
  ASSIGN_OR_RETURN(const bool used, fields.boolean("use_sliding_window", false));
  ASSIGN_OR_RETURN(const auto full_layers, fields.integer("max_window_layers", 0, 1 << 20));
  const bool on = used && window > 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool sliding =
        given ? (*given)[i] : on && static_cast<std::int64_t>(i) >= full_layers.value_or(28);
    if (sliding && !on) {
      return fields.error("layer_types",
                          "names sliding_attention, but use_sliding_window is "
                          "false or sliding_window is null");
    }
    layers[i].window = sliding ? window : 0;
  }
  return {};
}

Status apply_windows(const JsonFields& fields, const FamilyRules& rules,
                     std::vector<LayerConfig>& layers) {
  ASSIGN_OR_RETURN(const auto given,
                   read_sliding_layers(fields, static_cast<std::int32_t>(layers.size())));
  ASSIGN_OR_RETURN(const auto value, fields.integer("sliding_window", 1, ModelLimits::kPositions));
  if (rules.family == Family::kLlama) {
    if (value) {
      return fields.refusal("sliding_window",
                            "is not supported in family llama; expected null, or "
                            "MistralForCausalLM");
    }
    return check_layer_types(fields, given, false);
  }
  // An absent field is not null: transformers then uses 4096.
  const std::int32_t window = value                              ? static_cast<std::int32_t>(*value)
                              : fields.is_null("sliding_window") ? 0
                                                                 : 4096;
  if (rules.family == Family::kMistral) {
    RETURN_IF_ERROR(check_layer_types(fields, given, window > 0));
    for (LayerConfig& layer : layers) layer.window = window;
    return {};
  }
  return apply_qwen_windows(fields, window, given, layers);
}

std::optional<DType> parse_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  return std::nullopt;
}

Status read_tokens_and_dtype(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto bos, fields.token_ids("bos_token_id", config.vocab_size));
  if (!bos.empty()) config.bos_token = bos.front();
  ASSIGN_OR_RETURN(config.eos_tokens, fields.token_ids("eos_token_id", config.vocab_size));
  ASSIGN_OR_RETURN(const auto dtype, fields.string(fields.has("dtype") ? "dtype" : "torch_dtype"));
  if (dtype) config.dtype = parse_dtype(*dtype);
  return {};
}

void warn_about_ignored(const JsonFields& fields) {
  if (fields.has("dual_chunk_attention_config")) {
    log_warning(
        "config.json: dual_chunk_attention_config is ignored, as transformers does: "
        "attention is exact at every length");
  }
}

Result<ModelConfig> read_config(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const FamilyRules rules, read_family(fields));
  RETURN_IF_ERROR(refuse_unsupported_fields(fields));
  ModelConfig config;
  config.family = rules.family;
  ASSIGN_OR_RETURN(const Quantization quantization, read_quantization(fields));
  config.scaling = quantization.scaling;
  config.packing = quantization.packing;
  ASSIGN_OR_RETURN(config.vocab_size, read_size(fields, "vocab_size", ModelLimits::kVocabSize));
  ASSIGN_OR_RETURN(config.hidden_size, read_size(fields, "hidden_size", ModelLimits::kHiddenSize));
  ASSIGN_OR_RETURN(config.num_layers, read_size(fields, "num_hidden_layers", ModelLimits::kLayers));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   read_size(fields, "max_position_embeddings", ModelLimits::kPositions));
  ASSIGN_OR_RETURN(config.tie_embeddings, fields.boolean("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(const auto epsilon, fields.number("rms_norm_eps", 0, 1));
  config.norm_epsilon = static_cast<float>(epsilon.value_or(1e-6));

  LayerConfig layer;
  RETURN_IF_ERROR(read_heads(fields, rules, config.hidden_size, layer));
  RETURN_IF_ERROR(read_biases_and_activation(fields, rules, layer));
  ASSIGN_OR_RETURN(layer.intermediate_size,
                   read_size(fields, "intermediate_size", ModelLimits::kIntermediateSize));
  config.layers.assign(static_cast<std::size_t>(config.num_layers), layer);
  RETURN_IF_ERROR(apply_windows(fields, rules, config.layers));
  ASSIGN_OR_RETURN(const RopeConfig rope,
                   read_rope(fields, layer.head_dim, config.max_position_embeddings));
  config.ropes.push_back(rope);
  RETURN_IF_ERROR(read_tokens_and_dtype(fields, config));
  warn_about_ignored(fields);
  return config;
}

// The most frequent mistakes are a repository's name and a single weight file instead of a
// directory.
Error no_checkpoint(const std::string& directory) {
  std::error_code ignored;
  if (directory.ends_with(".gguf") && !std::filesystem::exists(directory, ignored)) {
    return not_found(directory + ": there is no such file");
  }
  if (std::filesystem::is_directory(directory, ignored)) {
    return not_found(directory +
                     "/config.json: is missing; expected a Hugging Face checkpoint directory");
  }
  if (std::filesystem::exists(directory, ignored)) {
    return not_found(directory +
                     ": is a file; expected a checkpoint directory with config.json and "
                     "*.safetensors, or a GGUF file, whose name ends in .gguf");
  }
  return not_found(directory +
                   ": there is no such directory; expected a checkpoint as "
                   "'hf download REPOSITORY --local-dir DIRECTORY' leaves it");
}

}  // namespace

float LayerConfig::attention_scale() const {
  return static_cast<float>(std::pow(static_cast<double>(head_dim), -0.5));
}

Result<ModelConfig> parse_model_config(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, parse_json_object(text, "config.json"));
  return read_config(JsonFields(json, "config.json: "));
}

Result<ModelConfig> load_model_config(const std::string& directory) {
  const auto text = read_model_text(directory, "config.json", ModelLimits::kConfigBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return no_checkpoint(directory);
  if (!text) return text.error();
  auto config = parse_model_config(*text);
  if (!config) return with_context(directory, config.error());
  return config;
}

}  // namespace sluice
