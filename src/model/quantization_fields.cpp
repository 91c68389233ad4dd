// Lists of modules that are not quantized (modules_to_not_convert, ignored_layers, ignore) are not
// read: the files say which matrices are. The readers of GPTQ and AWQ check
// only the fields that change the form of the tensors. Many others say how the scales were found.
#include "model/quantization_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::string_view kField = "quantization_config";
constexpr std::int64_t kLargestBlock = 1 << 20;

constexpr std::string_view kKvScheme = "kv_cache_scheme";
constexpr std::array<std::string_view, 8> kFp8Fields = {
    "quant_method",   "activation_scheme",      "fmt",       "weight_block_size",
    "ignored_layers", "modules_to_not_convert", "scale_fmt", kKvScheme};
constexpr std::array<std::string_view, 9> kCompressedFields = {
    "quant_method", "config_groups",       "format",
    "ignore",       "quantization_status", "global_compression_ratio",
    "version",      "sparsity_config",     kKvScheme};
constexpr std::array<std::string_view, 5> kGroupFields = {"weights", "input_activations", "targets",
                                                          "output_activations", "format"};
constexpr std::array<std::string_view, 12> kWeightFields = {
    "num_bits", "type",     "strategy",        "symmetric",  "dynamic",     "block_structure",
    "actorder", "observer", "observer_kwargs", "group_size", "scale_dtype", "zp_dtype"};

// Every other field is refused, unless it is empty.
Status check_known(const JsonFields& fields, std::span<const std::string_view> known) {
  for (const std::string& name : fields.names()) {
    const nlohmann::json* value = fields.find(name);
    if (value == nullptr || ((value->is_object() || value->is_array()) && value->empty())) continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return fields.refusal(quote_text(name), "is unknown and may change the result");
    }
  }
  return {};
}

// KV stays in the type of the activations, which is more exact than what the file asks for.
void note_kv_scheme(const JsonFields& fields) {
  if (!fields.has(kKvScheme)) return;
  log_info("config.json: quantization_config.kv_cache_scheme: the KV cache is not quantized");
}

Status expect_string(const JsonFields& fields, std::string_view name, std::string_view wanted) {
  ASSIGN_OR_RETURN(const auto value, fields.string(name));
  if (!value || *value == wanted) return {};
  return fields.refusal(name, fmt::format("{} is not supported; expected {}", quote_text(*value),
                                          quote_text(wanted)));
}

Status expect_one_of(const JsonFields& fields, std::string_view name,
                     std::span<const std::string_view> wanted) {
  ASSIGN_OR_RETURN(const auto value, fields.string(name));
  if (!value || std::find(wanted.begin(), wanted.end(), *value) != wanted.end()) return {};
  return fields.refusal(name, fmt::format("{} is not supported; expected {}", quote_text(*value),
                                          join(wanted, " or ")));
}

Status expect_boolean(const JsonFields& fields, std::string_view name, bool wanted) {
  ASSIGN_OR_RETURN(const bool value, fields.boolean(name, wanted));
  if (value == wanted) return {};
  return fields.refusal(name, fmt::format("{} is not supported; expected {}", value, wanted));
}

// Adapters and rotations, which the products would need too.
Status expect_empty(const JsonFields& fields, std::string_view name) {
  const nlohmann::json* value = fields.find(name);
  if (value == nullptr || value->empty() || *value == false) return {};
  return fields.refusal(name, "is not supported; expected null");
}

// 0 for all columns, which is -1 in the file.
Result<std::int32_t> read_group_size(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::int64_t size,
                   fields.required_integer("group_size", -1, kLargestBlock));
  if (size == 0) return fields.error("group_size", "is 0; expected -1 or a number of columns");
  return static_cast<std::int32_t>(std::max<std::int64_t>(size, 0));
}

// [rows, columns].
Result<CodeScaling> read_block(const JsonFields& fields, std::string_view name) {
  const nlohmann::json* value = fields.find(name);
  const auto is_size = [](const nlohmann::json& n) {
    return n.is_number_integer() && n >= 1 && n <= kLargestBlock;
  };
  if (value == nullptr || !value->is_array() || value->size() != 2 || !is_size((*value)[0]) ||
      !is_size((*value)[1])) {
    return fields.error(name,
                        fmt::format("expected two whole numbers from 1 to {}", kLargestBlock));
  }
  return CodeScaling{(*value)[0].get<std::int32_t>(), (*value)[1].get<std::int32_t>()};
}

Result<CodeScaling> read_fp8(const JsonFields& fields) {
  RETURN_IF_ERROR(check_known(fields, kFp8Fields));
  note_kv_scheme(fields);
  RETURN_IF_ERROR(expect_string(fields, "fmt", "e4m3"));
  ASSIGN_OR_RETURN(const auto scheme, fields.string("activation_scheme"));
  if (scheme && *scheme != "dynamic" && *scheme != "static") {
    return fields.refusal("activation_scheme",
                          fmt::format("{} is not supported; expected \"dynamic\" or \"static\"",
                                      quote_text(*scheme)));
  }
  if (!fields.has("weight_block_size")) return CodeScaling{};
  return read_block(fields, "weight_block_size");
}

Result<CodeScaling> read_weights(const JsonFields& fields) {
  RETURN_IF_ERROR(check_known(fields, kWeightFields));
  ASSIGN_OR_RETURN(const std::int64_t bits, fields.required_integer("num_bits", 1, 64));
  if (bits != 8) return fields.refusal("num_bits", fmt::format("{}; expected 8", bits));
  if (!fields.has("type")) return fields.error("type", "is missing; expected \"float\"");
  RETURN_IF_ERROR(expect_string(fields, "type", "float"));
  ASSIGN_OR_RETURN(const bool symmetric, fields.boolean("symmetric", true));
  if (!symmetric) return fields.refusal("symmetric", "false is not supported; expected true");
  ASSIGN_OR_RETURN(const bool dynamic, fields.boolean("dynamic", false));
  if (dynamic) return fields.refusal("dynamic", "true is not supported; expected false");
  ASSIGN_OR_RETURN(const auto strategy, fields.string("strategy"));
  if (strategy && *strategy == "tensor") return CodeScaling{};
  if (strategy && *strategy == "channel") return CodeScaling{1, 0};
  if (strategy && *strategy == "block") return read_block(fields, "block_structure");
  return fields.refusal("strategy",
                        fmt::format("{} is not supported; expected \"tensor\", \"channel\" or "
                                    "\"block\"",
                                    strategy ? quote_text(*strategy) : "null"));
}

// Keys that begin with "-:" name modules that are not quantized. Others change how modules are.
Status check_dynamic(const JsonFields& fields) {
  const nlohmann::json* dynamic = fields.find("dynamic");
  if (dynamic == nullptr || *dynamic == false) return {};
  if (!dynamic->is_object()) return fields.error("dynamic", "expected an object");
  for (const auto& [pattern, ignored] : dynamic->items()) {
    if (pattern.starts_with("-:")) continue;
    return fields.refusal("dynamic",
                          fmt::format("{} is not supported; expected only patterns that begin "
                                      "with \"-:\", and one form for all quantized modules",
                                      quote_text(pattern)));
  }
  return {};
}

// AWQ's words hold codes of 4 bits only. REQUIRES: `packing.packing` is set.
Status read_bits_and_group(const JsonFields& fields, WeightPacking& packing) {
  const bool awq = packing.packing == Packing::kAwq;
  ASSIGN_OR_RETURN(const std::int64_t bits, fields.required_integer("bits", 1, 64));
  if (bits != 4 && (awq || bits != 8)) {
    return fields.refusal(
        "bits", fmt::format("{} is not supported; expected {}", bits, awq ? "4" : "4 or 8"));
  }
  packing.bits = static_cast<std::int32_t>(bits);
  ASSIGN_OR_RETURN(packing.group_size, read_group_size(fields));
  return {};
}

Result<WeightPacking> read_gptq(const JsonFields& fields) {
  constexpr std::array<std::string_view, 2> kFormats = {"gptq", "gptq_v2"};
  for (const char* name : {"checkpoint_format", "format"}) {
    RETURN_IF_ERROR(expect_one_of(fields, name, kFormats));
  }
  RETURN_IF_ERROR(expect_boolean(fields, "is_marlin_format", false));
  RETURN_IF_ERROR(expect_string(fields, "pack_dtype", "int32"));
  RETURN_IF_ERROR(check_dynamic(fields));
  for (const char* name : {"adapter", "rotation"}) RETURN_IF_ERROR(expect_empty(fields, name));
  WeightPacking packing;
  RETURN_IF_ERROR(read_bits_and_group(fields, packing));
  const char* const format = fields.has("checkpoint_format") ? "checkpoint_format" : "format";
  ASSIGN_OR_RETURN(const auto version, fields.string(format));
  packing.packing = version == "gptq_v2" ? Packing::kGptqV2 : Packing::kGptq;
  return packing;
}

Result<WeightPacking> read_awq(const JsonFields& fields) {
  constexpr std::array<std::string_view, 2> kVersions = {"gemm", "GEMM"};
  constexpr std::array<std::string_view, 1> kBackends = {"autoawq"};
  for (const char* name : {"version", "checkpoint_format", "format"}) {
    RETURN_IF_ERROR(expect_one_of(fields, name, kVersions));
  }
  RETURN_IF_ERROR(expect_one_of(fields, "backend", kBackends));
  WeightPacking packing;
  packing.packing = Packing::kAwq;
  RETURN_IF_ERROR(read_bits_and_group(fields, packing));
  return packing;
}

// Modules with fields of their own. Those with 16 bits or more are not quantized.
Status check_extra_config(const JsonFields& fields) {
  const nlohmann::json* modules = fields.find("extra_config");
  if (modules == nullptr) return {};
  if (!modules->is_object()) return fields.error("extra_config", "expected an object");
  for (const auto& [module, own] : modules->items()) {
    const auto bits = own.is_object() ? own.find("bits") : own.end();
    if (own.is_object() && bits != own.end() && bits->is_number_integer() && *bits >= 16) continue;
    return fields.refusal("extra_config",
                          fmt::format("{} is quantized in another form; expected one form for all "
                                      "quantized modules",
                                      quote_text(module)));
  }
  return {};
}

// AutoRound's own name for the forms of GPTQ and AWQ.
Result<WeightPacking> read_auto_round(const JsonFields& fields) {
  constexpr const char* kFormat = "packing_format";
  constexpr std::string_view kGptq = "auto_round:auto_gptq";
  constexpr std::array<std::string_view, 2> kFormats = {kGptq, "auto_round:auto_awq"};
  if (!fields.has(kFormat)) {
    return fields.refusal(kFormat, fmt::format("is missing; expected {}", join(kFormats, " or ")));
  }
  RETURN_IF_ERROR(expect_one_of(fields, kFormat, kFormats));
  RETURN_IF_ERROR(expect_string(fields, "data_type", "int"));
  RETURN_IF_ERROR(check_extra_config(fields));
  RETURN_IF_ERROR(expect_empty(fields, "rotation_config"));
  ASSIGN_OR_RETURN(const auto format, fields.string(kFormat));
  WeightPacking packing;
  packing.packing = format == kGptq ? Packing::kGptq : Packing::kAwq;
  RETURN_IF_ERROR(read_bits_and_group(fields, packing));
  return packing;
}

// Inputs in INT8: those of each token get a scale of their own, whatever the file says of that.
Status check_int8_inputs(const JsonFields& inputs) {
  ASSIGN_OR_RETURN(const std::int64_t bits, inputs.required_integer("num_bits", 1, 64));
  if (bits != 8) return inputs.refusal("num_bits", fmt::format("{}; expected 8", bits));
  RETURN_IF_ERROR(expect_string(inputs, "type", "int"));
  return expect_boolean(inputs, "symmetric", true);
}

// The order in which scales were found ("group" puts columns into groups out of order: the file's
// weight_g_idx says so, and its reader checks that).
Result<WeightPacking> read_integers(const JsonFields& fields, bool plain) {
  RETURN_IF_ERROR(check_known(fields, kWeightFields));
  RETURN_IF_ERROR(expect_boolean(fields, "dynamic", false));
  if (!fields.has("type")) return fields.error("type", "is missing; expected \"int\"");
  RETURN_IF_ERROR(expect_string(fields, "type", "int"));
  WeightPacking packing;
  packing.packing = plain ? Packing::kPlainInt8 : Packing::kCompressed;
  ASSIGN_OR_RETURN(const std::int64_t bits, fields.required_integer("num_bits", 1, 64));
  if (bits != 8 && (plain || bits != 4)) {
    return fields.refusal("num_bits", fmt::format("{}; expected {}", bits, plain ? "8" : "4 or 8"));
  }
  packing.bits = static_cast<std::int32_t>(bits);
  ASSIGN_OR_RETURN(const bool symmetric, fields.boolean("symmetric", true));
  packing.zero_points = !symmetric;
  ASSIGN_OR_RETURN(const auto strategy, fields.string("strategy"));
  if (strategy && *strategy == "channel") return packing;
  if (strategy && *strategy == "group") {
    ASSIGN_OR_RETURN(packing.group_size, read_group_size(fields));
    return packing;
  }
  return fields.refusal("strategy",
                        fmt::format("{} is not supported; expected \"channel\" or \"group\"",
                                    strategy ? quote_text(*strategy) : "null"));
}

// Weights and inputs in INT8.
Result<CodeScaling> read_int8(const JsonFields& weights, const JsonFields& inputs) {
  RETURN_IF_ERROR(check_int8_inputs(inputs));
  RETURN_IF_ERROR(expect_boolean(weights, "symmetric", true));
  ASSIGN_OR_RETURN(const WeightPacking as_integers, read_integers(weights, true));
  if (as_integers.group_size == 0) return CodeScaling{1, 0, DType::kI8};
  return weights.refusal("strategy",
                         "\"group\" with input_activations is not supported; expected "
                         "\"channel\"");
}

// The first of the group's `format` and the checkpoint's.
Result<std::string> read_format(const JsonFields& fields, const JsonFields& group) {
  constexpr std::array<std::string_view, 3> kFormats = {"float-quantized", "int-quantized",
                                                        "pack-quantized"};
  const JsonFields& named = group.has("format") ? group : fields;
  RETURN_IF_ERROR(expect_one_of(named, "format", kFormats));
  ASSIGN_OR_RETURN(const auto format, named.string("format"));
  return format.value_or("float-quantized");
}

Status check_sparsity(const JsonFields& fields, const std::string& prefix) {
  const nlohmann::json* sparsity = fields.find("sparsity_config");
  if (sparsity == nullptr || sparsity->empty()) return {};
  if (!sparsity->is_object()) return fields.error("sparsity_config", "expected an object");
  return expect_string(JsonFields(*sparsity, prefix + "sparsity_config."), "format", "dense");
}

Result<Quantization> read_compressed(const JsonFields& fields, const std::string& prefix) {
  RETURN_IF_ERROR(check_known(fields, kCompressedFields));
  note_kv_scheme(fields);
  RETURN_IF_ERROR(expect_string(fields, "quantization_status", "compressed"));
  RETURN_IF_ERROR(check_sparsity(fields, prefix));
  const nlohmann::json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1 ||
      !groups->front().is_object()) {
    return fields.refusal("config_groups", "expected an object with one group of weights");
  }
  const std::string in_group = prefix + "config_groups." + groups->begin().key() + ".";
  const JsonFields group(groups->front(), in_group);
  RETURN_IF_ERROR(check_known(group, kGroupFields));
  if (group.has("output_activations")) {
    return group.refusal("output_activations", "is not supported; expected null");
  }
  const nlohmann::json* json = group.find("weights");
  if (json == nullptr || !json->is_object()) {
    return group.refusal("weights", "expected an object that describes quantized weights");
  }
  const JsonFields weights(*json, in_group + "weights.");
  const nlohmann::json* inputs = group.find("input_activations");
  if (inputs != nullptr && !inputs->is_object()) {
    return group.error("input_activations", "expected an object");
  }
  ASSIGN_OR_RETURN(const std::string format, read_format(fields, group));
  Quantization result;
  if (format == "float-quantized") {
    ASSIGN_OR_RETURN(result.scaling, read_weights(weights));
  } else if (format == "int-quantized" && inputs != nullptr) {
    ASSIGN_OR_RETURN(result.scaling,
                     read_int8(weights, JsonFields(*inputs, in_group + "input_activations.")));
  } else {
    ASSIGN_OR_RETURN(result.packing, read_integers(weights, format == "int-quantized"));
  }
  return result;
}

}  // namespace

Result<Quantization> read_quantization(const JsonFields& config) {
  Quantization result;
  const nlohmann::json* json = config.find(kField);
  if (json == nullptr) return result;
  if (!json->is_object()) return config.error(kField, "expected an object");
  const std::string prefix = fmt::format("config.json: {}.", kField);
  const JsonFields fields(*json, prefix);
  ASSIGN_OR_RETURN(const auto method, fields.string("quant_method"));
  if (method == "fp8") {
    ASSIGN_OR_RETURN(result.scaling, read_fp8(fields));
  } else if (method == "gptq") {
    ASSIGN_OR_RETURN(result.packing, read_gptq(fields));
  } else if (method == "awq") {
    ASSIGN_OR_RETURN(result.packing, read_awq(fields));
  } else if (method == "auto-round" || method == "intel/auto-round") {
    ASSIGN_OR_RETURN(result.packing, read_auto_round(fields));
  } else if (method == "compressed-tensors") {
    return read_compressed(fields, prefix);
  } else {
    return fields.refusal(
        "quant_method", fmt::format("{} is not supported; expected \"fp8\", \"gptq\", \"awq\", "
                                    "\"auto-round\" or \"compressed-tensors\", or a checkpoint in "
                                    "F32, F16 or BF16",
                                    method ? quote_text(*method) : "null"));
  }
  return result;
}

}  // namespace sluice
