#include "adapter/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "base/json_text.h"
#include "checkpoint/quote_text.h"
#include "device/op_params.h"
#include "model/json_fields.h"

namespace sluice {
namespace {

constexpr std::string_view kFile = "adapter_config.json";
constexpr std::size_t kMaxPatterns = 1024;
constexpr double kMaxAlpha = 1e9;

// Fields that say nothing about the result, whatever their value.
constexpr std::array<std::string_view, 13> kIrrelevant = {"auto_mapping",
                                                          "base_model_name_or_path",
                                                          "ensure_weight_tying",
                                                          "inference_mode",
                                                          "lora_dropout",
                                                          "megatron_core",
                                                          "peft_version",
                                                          "qalora_group_size",
                                                          "revision",
                                                          "eva_config",
                                                          "runtime_config",
                                                          "lora_ga_config",
                                                          "corda_config"};

// Fields that are read below.
constexpr std::array<std::string_view, 15> kRead = {"r",
                                                    "lora_alpha",
                                                    "use_rslora",
                                                    "rank_pattern",
                                                    "alpha_pattern",
                                                    "peft_type",
                                                    "task_type",
                                                    "target_modules",
                                                    "exclude_modules",
                                                    "layers_to_transform",
                                                    "layers_pattern",
                                                    "bias",
                                                    "init_lora_weights",
                                                    "loftq_config",
                                                    "use_dora"};

// Known fields that are refused when they are set, with the reason.
struct RefusedField {
  std::string_view name;
  std::string_view reason;
};
constexpr std::array<RefusedField, 12> kRefused = {{
    {"alora_invocation_tokens", "activated LoRA (aLoRA) is not supported"},
    {"arrow_config", "Arrow routing between adapters is not supported"},
    {"fan_in_fan_out", "transposed base weights are not supported; no served model has them"},
    {"layer_replication", "replicated layers are not supported"},
    {"lora_bias", "a bias in lora_B is not supported; train with lora_bias=False"},
    {"megatron_config", "Megatron's parallel layers are not supported"},
    {"modules_to_save", "fully trained modules are not supported; train with LoRA on layers only"},
    {"target_parameters", "LoRA of bare parameters is not supported"},
    {"trainable_token_indices", "trained rows of the embedding are not supported"},
    {"use_bdlora", "block-diagonal LoRA is not supported"},
    {"use_qalora", "QA-LoRA is not supported"},
    {"kasa_config", "KaSA is not supported"},
}};

bool contains(auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// PEFT writes defaults of every field, so null, false and empty values mean "not set".
bool is_set(const nlohmann::json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string() || value.is_array() || value.is_object()) {
    return value.is_string() ? !value.get_ref<const std::string&>().empty() : !value.empty();
  }
  return true;
}

Status refuse_others(const nlohmann::json& object, const JsonFields& fields) {
  for (const auto& [name, value] : object.items()) {
    if (contains(kIrrelevant, name) || contains(kRead, name) || !is_set(value)) continue;
    const auto refused = std::find_if(kRefused.begin(), kRefused.end(),
                                      [&](const RefusedField& f) { return f.name == name; });
    if (refused != kRefused.end()) return fields.refusal(name, refused->reason);
    return fields.refusal(quote_text(name),
                          "an unknown field that is set; it may change the adapter's result");
  }
  return {};
}

Status check_kind(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const auto type, fields.string("peft_type"));
  if (!type) return fields.error("peft_type", "is missing; expected \"LORA\"");
  if (*type != "LORA") {
    return fields.refusal("peft_type", quote_text(*type) + " is not supported; expected \"LORA\"");
  }
  ASSIGN_OR_RETURN(const auto task, fields.string("task_type"));
  if (task && *task != "CAUSAL_LM") {
    return fields.refusal("task_type",
                          quote_text(*task) + " is not supported; expected \"CAUSAL_LM\"");
  }
  ASSIGN_OR_RETURN(const auto bias, fields.string("bias"));
  if (bias && *bias != "none") {
    return fields.refusal("bias", "trained biases are not supported; train with bias=\"none\"");
  }
  return {};
}

// Some initializations change the base weights, so the adapter does not fit the base model.
Status check_initialization(const JsonFields& fields) {
  const nlohmann::json* value = fields.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return {};
  ASSIGN_OR_RETURN(const auto name, fields.string("init_lora_weights"));
  for (const std::string_view known : {"gaussian", "eva", "orthogonal", "true", "false"}) {
    if (*name == known) return {};
  }
  return fields.refusal(
      "init_lora_weights",
      quote_text(*name) +
          " changes the base weights; save with path_initial_model_for_weight_conversion");
}

Result<ModuleSet> read_modules(const JsonFields& fields, std::string_view name) {
  ModuleSet set;
  const nlohmann::json* value = fields.find(name);
  if (value == nullptr) return set;
  if (!value->is_string()) {
    auto names = fields.strings(name);
    if (!names) return std::move(names).error();
    set.suffixes = std::move(names->value());
    return set;
  }
  const auto& text = value->get_ref<const std::string&>();
  // PEFT ignores the letters' case of this word.
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name == "target_modules" && lower == "all-linear") {
    set.all_linear = true;
    return set;
  }
  auto pattern = ModulePattern::compile(text);
  if (!pattern) return fields.error(name, pattern.error().message);
  set.pattern = *std::move(pattern);
  return set;
}

Result<std::optional<std::vector<std::int64_t>>> read_layers(const JsonFields& fields) {
  const nlohmann::json* value = fields.find("layers_to_transform");
  if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
  const auto wrong = [&] {
    return fields.error("layers_to_transform", "expected a layer's index or an array of them");
  };
  std::vector<std::int64_t> layers;
  for (std::size_t i = 0; i < (value->is_array() ? value->size() : 1); ++i) {
    const nlohmann::json& item = value->is_array() ? (*value)[i] : *value;
    if (!item.is_number_integer()) return wrong();
    layers.push_back(item.get<std::int64_t>());
  }
  // PEFT treats an empty list as an absent one.
  if (layers.empty()) return std::optional<std::vector<std::int64_t>>();
  return std::optional(std::move(layers));
}

// Layers are found by their place in the model's name of a module, which is PEFT's default.
Status check_layers_pattern(const JsonFields& fields) {
  const nlohmann::json* value = fields.find("layers_pattern");
  if (value == nullptr || !is_set(*value)) return {};
  if (*value == "layers" || *value == nlohmann::json::array({"layers"})) return {};
  return fields.refusal("layers_pattern", "expected \"layers\", null or an empty list");
}

// PEFT matches `(.*\.)?(KEY)$` from the start of a module's name.
Result<ModulePattern> compile_key(const JsonFields& fields, std::string_view field,
                                  std::string_view key) {
  auto alone = ModulePattern::compile(key);  // parentheses in the key must be balanced by itself
  if (!alone) return fields.error(field, alone.error().message);
  auto pattern = ModulePattern::compile(fmt::format("(.*\\.)?({})", key));
  if (!pattern) return fields.error(field, pattern.error().message);
  return pattern;
}

// `ordered` keeps the order of the file, which decides which pattern wins.
Result<std::vector<PatternValue>> read_patterns(const nlohmann::ordered_json& ordered,
                                                const JsonFields& fields, std::string_view name,
                                                double least, double most, bool whole) {
  std::vector<PatternValue> patterns;
  const auto found = ordered.find(name);
  if (found == ordered.end() || found->is_null()) return patterns;
  if (!found->is_object()) {
    return fields.error(name, "expected an object of patterns and numbers");
  }
  if (found->size() > kMaxPatterns) {
    return fields.error(name, fmt::format("more than {} patterns", kMaxPatterns));
  }
  for (const auto& [key, value] : found->items()) {
    const bool fits = whole ? value.is_number_integer() : value.is_number();
    const double number = fits ? value.template get<double>() : least - 1;
    if (!(number >= least && number <= most)) {
      return fields.error(name, fmt::format("{}: expected a {}number from {} to {}",
                                            quote_text(key), whole ? "whole " : "", least, most));
    }
    ASSIGN_OR_RETURN(ModulePattern pattern, compile_key(fields, name, key));
    patterns.push_back({std::move(pattern), number});
  }
  return patterns;
}

Result<double> value_for(const std::vector<PatternValue>& patterns, std::string_view module,
                         double otherwise) {
  for (const PatternValue& entry : patterns) {
    ASSIGN_OR_RETURN(const bool matches, entry.pattern.matches(module));
    if (matches) return entry.value;
  }
  return otherwise;
}

bool ends_with_name(std::string_view module, std::string_view name) {
  if (!module.ends_with(name)) return false;
  const std::size_t before = module.size() - name.size();
  return before == 0 || module[before - 1] == '.';
}

Result<bool> covers(const ModuleSet& set, std::string_view module) {
  if (set.pattern) return set.pattern->matches(module);
  return std::any_of(set.suffixes.begin(), set.suffixes.end(),
                     [&](const std::string& name) { return ends_with_name(module, name); });
}

}  // namespace

Result<AdapterConfig> AdapterConfig::parse(std::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json object, parse_json_object(json, kFile));
  const JsonFields fields(object, fmt::format("{}: ", kFile));
  RETURN_IF_ERROR(check_kind(fields));
  RETURN_IF_ERROR(refuse_others(object, fields));
  RETURN_IF_ERROR(check_initialization(fields));
  RETURN_IF_ERROR(check_layers_pattern(fields));
  if (const auto* loftq = fields.find("loftq_config"); loftq != nullptr && is_set(*loftq)) {
    return fields.refusal("loftq_config", "LoftQ changes the base weights");
  }
  std::string storage;
  const auto strict = strict_json(json, storage);
  const auto ordered = parse_ordered_json(*strict);

  AdapterConfig config;
  constexpr std::int64_t kMaxRank = LoraTable::kMaxRank;
  ASSIGN_OR_RETURN(const auto rank, fields.integer("r", 1, kMaxRank));
  config.rank_ = static_cast<std::int32_t>(rank.value_or(8));  // PEFT's defaults
  ASSIGN_OR_RETURN(const auto alpha, fields.number("lora_alpha", -kMaxAlpha, kMaxAlpha));
  config.alpha_ = alpha.value_or(8);
  ASSIGN_OR_RETURN(config.rank_stabilized_, fields.boolean("use_rslora", false));
  ASSIGN_OR_RETURN(config.magnitudes_, fields.boolean("use_dora", false));
  ASSIGN_OR_RETURN(config.targets_, read_modules(fields, "target_modules"));
  const ModuleSet& targets = config.targets_;
  if (!targets.all_linear && !targets.pattern && targets.suffixes.empty()) {
    return fields.error("target_modules",
                        "is missing; expected a list of modules, a pattern or \"all-linear\"");
  }
  ASSIGN_OR_RETURN(config.excluded_, read_modules(fields, "exclude_modules"));
  ASSIGN_OR_RETURN(config.layers_, read_layers(fields));
  if (config.layers_ && (targets.pattern || targets.all_linear)) {
    return fields.error("layers_to_transform",
                        "works only with a list of target_modules, as in PEFT");
  }
  ASSIGN_OR_RETURN(config.rank_patterns_,
                   read_patterns(ordered, fields, "rank_pattern", 1, kMaxRank, true));
  ASSIGN_OR_RETURN(config.alpha_patterns_,
                   read_patterns(ordered, fields, "alpha_pattern", -kMaxAlpha, kMaxAlpha, false));
  return config;
}

// PEFT matches the last "NAME.INDEX." of a module's name.
bool AdapterConfig::is_layer_wanted(std::string_view module) const {
  const std::size_t mark = module.rfind(".layers.");
  if (mark == std::string_view::npos) return false;
  const char* digits = module.data() + mark + 8;
  std::int64_t layer = -1;
  const auto [end, problem] = std::from_chars(digits, module.data() + module.size(), layer);
  if (problem != std::errc() || end == digits) return false;
  return std::find(layers_->begin(), layers_->end(), layer) != layers_->end();
}

Result<bool> AdapterConfig::is_target(std::string_view module, bool in_layers) const {
  ASSIGN_OR_RETURN(const bool excluded, covers(excluded_, module));
  if (excluded) return false;
  if (targets_.all_linear) return in_layers;
  ASSIGN_OR_RETURN(const bool covered, covers(targets_, module));
  if (!covered || !layers_) return covered;
  // A module that is listed by its whole name is changed in any case.
  const auto& names = targets_.suffixes;
  if (std::find(names.begin(), names.end(), module) != names.end()) return true;
  return is_layer_wanted(module);
}

Result<bool> AdapterConfig::targets_outside_layers(std::string_view module) const {
  return is_target(module, false);
}

Result<std::optional<ModuleLora>> AdapterConfig::find(std::string_view module) const {
  ASSIGN_OR_RETURN(const bool target, is_target(module, true));
  if (!target) return std::optional<ModuleLora>();
  ASSIGN_OR_RETURN(const double rank, value_for(rank_patterns_, module, rank_));
  ASSIGN_OR_RETURN(const double alpha, value_for(alpha_patterns_, module, alpha_));
  ModuleLora lora;
  lora.rank = static_cast<std::int32_t>(rank);
  lora.scale = static_cast<float>(alpha / (rank_stabilized_ ? std::sqrt(rank) : rank));
  return std::optional(lora);
}

}  // namespace sluice
