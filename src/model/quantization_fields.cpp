// Lists of modules that are not quantized (modules_to_not_convert, ignored_layers, ignore) are not
// read: the files say which matrices are in FP8.
#include "model/quantization_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::string_view kField = "quantization_config";
constexpr std::int64_t kLargestBlock = 1 << 20;

constexpr std::array<std::string_view, 7> kFp8Fields = {
    "quant_method",   "activation_scheme",      "fmt",      "weight_block_size",
    "ignored_layers", "modules_to_not_convert", "scale_fmt"};
constexpr std::array<std::string_view, 7> kCompressedFields = {
    "quant_method", "config_groups",       "format",
    "ignore",       "quantization_status", "global_compression_ratio",
    "version"};
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

Status expect_string(const JsonFields& fields, std::string_view name, std::string_view wanted) {
  ASSIGN_OR_RETURN(const auto value, fields.string(name));
  if (!value || *value == wanted) return {};
  return fields.refusal(name, fmt::format("{} is not supported; expected {}", quote_text(*value),
                                          quote_text(wanted)));
}

// [rows, columns].
Result<Fp8Scaling> read_block(const JsonFields& fields, std::string_view name) {
  const nlohmann::json* value = fields.find(name);
  const auto is_size = [](const nlohmann::json& n) {
    return n.is_number_integer() && n >= 1 && n <= kLargestBlock;
  };
  if (value == nullptr || !value->is_array() || value->size() != 2 || !is_size((*value)[0]) ||
      !is_size((*value)[1])) {
    return fields.error(name,
                        fmt::format("expected two whole numbers from 1 to {}", kLargestBlock));
  }
  return Fp8Scaling{(*value)[0].get<std::int32_t>(), (*value)[1].get<std::int32_t>()};
}

Result<Fp8Scaling> read_fp8(const JsonFields& fields) {
  RETURN_IF_ERROR(check_known(fields, kFp8Fields));
  RETURN_IF_ERROR(expect_string(fields, "fmt", "e4m3"));
  ASSIGN_OR_RETURN(const auto scheme, fields.string("activation_scheme"));
  if (scheme && *scheme != "dynamic" && *scheme != "static") {
    return fields.refusal("activation_scheme",
                          fmt::format("{} is not supported; expected \"dynamic\" or \"static\"",
                                      quote_text(*scheme)));
  }
  if (!fields.has("weight_block_size")) return Fp8Scaling{};
  return read_block(fields, "weight_block_size");
}

Result<Fp8Scaling> read_weights(const JsonFields& fields) {
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
  if (strategy && *strategy == "tensor") return Fp8Scaling{};
  if (strategy && *strategy == "channel") return Fp8Scaling{1, 0};
  if (strategy && *strategy == "block") return read_block(fields, "block_structure");
  return fields.refusal("strategy",
                        fmt::format("{} is not supported; expected \"tensor\", \"channel\" or "
                                    "\"block\"",
                                    strategy ? quote_text(*strategy) : "null"));
}

Result<Fp8Scaling> read_compressed(const JsonFields& fields, const std::string& prefix) {
  RETURN_IF_ERROR(check_known(fields, kCompressedFields));
  RETURN_IF_ERROR(expect_string(fields, "format", "float-quantized"));
  RETURN_IF_ERROR(expect_string(fields, "quantization_status", "compressed"));
  const nlohmann::json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1 ||
      !groups->front().is_object()) {
    return fields.refusal("config_groups", "expected an object with one group of FP8 weights");
  }
  const std::string in_group = prefix + "config_groups." + groups->begin().key() + ".";
  const JsonFields group(groups->front(), in_group);
  RETURN_IF_ERROR(check_known(group, kGroupFields));
  if (group.has("output_activations")) {
    return group.refusal("output_activations", "is not supported; expected null");
  }
  const nlohmann::json* weights = group.find("weights");
  if (weights == nullptr || !weights->is_object()) {
    return group.refusal("weights", "expected an object that describes FP8 weights");
  }
  return read_weights(JsonFields(*weights, in_group + "weights."));
}

}  // namespace

Result<std::optional<Fp8Scaling>> read_quantization(const JsonFields& config) {
  const nlohmann::json* json = config.find(kField);
  if (json == nullptr) return std::optional<Fp8Scaling>();
  if (!json->is_object()) return config.error(kField, "expected an object");
  const std::string prefix = fmt::format("config.json: {}.", kField);
  const JsonFields fields(*json, prefix);
  ASSIGN_OR_RETURN(const auto method, fields.string("quant_method"));
  if (!method || (*method != "fp8" && *method != "compressed-tensors")) {
    return fields.refusal(
        "quant_method",
        fmt::format("{} is not supported; expected \"fp8\" or \"compressed-tensors\" with FP8 "
                    "weights, or a checkpoint in F32, F16 or BF16",
                    method ? quote_text(*method) : "null"));
  }
  ASSIGN_OR_RETURN(const Fp8Scaling scaling,
                   *method == "fp8" ? read_fp8(fields) : read_compressed(fields, prefix));
  return std::optional(scaling);
}

}  // namespace sluice
