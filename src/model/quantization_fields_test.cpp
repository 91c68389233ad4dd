#include "model/quantization_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Result<Quantization> read(const json& quantization) {
  const json config = {{"quantization_config", quantization}};
  return read_quantization(JsonFields(config, "config.json: "));
}

std::string refusal(const json& quantization) {
  const auto result = read(quantization);
  return result ? "no error" : result.error().message;
}

CodeScaling scaling(const json& quantization) {
  const auto result = read(quantization);
  EXPECT_TRUE(result) << result.error().message;
  return result && result->scaling ? *result->scaling : CodeScaling{-1, -1};
}

WeightPacking packing(const json& quantization) {
  const auto result = read(quantization);
  EXPECT_TRUE(result) << result.error().message;
  return result && result->packing ? *result->packing : WeightPacking{Packing::kGptq, -1, -1};
}

json fp8() {
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"modules_to_not_convert", {"lm_head"}},
          {"weight_block_size", {128, 64}}};
}

json compressed(const std::string& strategy) {
  const json weights = {{"actorder", nullptr},
                        {"block_structure", {128, 128}},
                        {"dynamic", false},
                        {"group_size", nullptr},
                        {"num_bits", 8},
                        {"observer", "minmax"},
                        {"observer_kwargs", json::object()},
                        {"strategy", strategy},
                        {"symmetric", true},
                        {"type", "float"}};
  const json group = {{"input_activations", {{"num_bits", 8}, {"dynamic", true}}},
                      {"output_activations", nullptr},
                      {"targets", {"Linear"}},
                      {"weights", weights}};
  return {{"config_groups", {{"group_0", group}}},
          {"format", "float-quantized"},
          {"ignore", {"lm_head"}},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"sparsity_config", json::object()}};
}

TEST(QuantizationFields, ReadsTheFormsThatArePublished) {
  EXPECT_EQ(scaling(fp8()), (CodeScaling{128, 64}));
  json tensor = fp8();
  tensor.erase("weight_block_size");
  tensor["activation_scheme"] = "static";
  EXPECT_EQ(scaling(tensor), CodeScaling{}) << "one scale a matrix";
  EXPECT_EQ(scaling(compressed("tensor")), CodeScaling{});
  EXPECT_EQ(scaling(compressed("channel")), (CodeScaling{1, 0}));
  EXPECT_EQ(scaling(compressed("block")), (CodeScaling{128, 128}));
  const auto none = read(nullptr);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->scaling || none->packing);
}

TEST(QuantizationFields, RefusesOthersByName) {
  EXPECT_THAT(
      refusal({{"quant_method", "bitsandbytes"}, {"bits", 4}}),
      HasSubstr(
          "config.json: quantization_config.quant_method: \"bitsandbytes\" is not supported"));
  EXPECT_THAT(refusal(json::object()), HasSubstr("quant_method: null is not supported"));
  EXPECT_THAT(refusal("fp8"), HasSubstr("config.json: quantization_config: expected an object"));
  const auto with = [](json config, const json::json_pointer& at, const json& value) {
    config[at] = value;
    return refusal(config);
  };
  EXPECT_THAT(with(fp8(), "/fmt"_json_pointer, "e5m2"), HasSubstr(".fmt: \"e5m2\""));
  EXPECT_THAT(with(fp8(), "/activation_scheme"_json_pointer, "odd"),
              HasSubstr("activation_scheme"));
  EXPECT_THAT(with(fp8(), "/new_thing"_json_pointer, "static"),
              HasSubstr("\"new_thing\": is unknown"));
  for (const json& block : {json(128), json({128}), json({0, 128}), json({128, 1.5}),
                            json({1, std::int64_t{1} << 40})}) {
    EXPECT_THAT(with(fp8(), "/weight_block_size"_json_pointer, block),
                HasSubstr("weight_block_size: expected two whole numbers"))
        << block;
  }
  const auto in_group = [&](const std::string& field, const json& value) {
    return with(compressed("tensor"), json::json_pointer("/config_groups/group_0" + field), value);
  };
  EXPECT_THAT(in_group("/weights/num_bits", 4),
              HasSubstr("quantization_config.config_groups.group_0.weights.num_bits: 4"));
  EXPECT_THAT(in_group("/weights/type", "int"), HasSubstr("weights.type: \"int\""));
  EXPECT_THAT(in_group("/weights/strategy", "group"), HasSubstr("strategy: \"group\""));
  EXPECT_THAT(in_group("/weights/symmetric", false), HasSubstr("symmetric"));
  EXPECT_THAT(in_group("/weights/new_thing", 1), HasSubstr("\"new_thing\": is unknown"));
  EXPECT_THAT(in_group("/output_activations", {{"num_bits", 8}}), HasSubstr("output_activations"));
  EXPECT_THAT(with(compressed("tensor"), "/format"_json_pointer, "marlin-24"),
              HasSubstr("format: \"marlin-24\" is not supported; expected float-quantized or "));
  EXPECT_THAT(with(compressed("tensor"), "/config_groups/group_1"_json_pointer, json::object()),
              HasSubstr("config_groups: expected an object with one group"));
}

TEST(QuantizationFields, LeavesTheKvCacheAsItIs) {
  json packed = compressed("channel");
  packed["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}};
  EXPECT_EQ(scaling(packed), (CodeScaling{1, 0}));
  json old = fp8();
  old["kv_cache_scheme"] = "static";
  EXPECT_EQ(scaling(old), (CodeScaling{128, 64}));
}

json gptq() {
  return {{"quant_method", "gptq"},
          {"bits", 4},
          {"group_size", 128},
          {"desc_act", false},
          {"sym", true},
          {"damp_percent", 0.1},
          {"true_sequential", true},
          {"model_file_base_name", "model"},
          {"meta", {{"quantizer", {"gptqmodel:1.9.0"}}}},
          {"dynamic", {{"-:.*down_proj.*", json::object()}}}};
}

json awq() {
  return {{"quant_method", "awq"}, {"bits", 4},          {"group_size", 64},
          {"version", "gemm"},     {"zero_point", true}, {"modules_to_not_convert", nullptr}};
}

// The weights of a model that llm-compressor quantizes to integers.
json integers(const std::string& format, int bits, const json& group_size) {
  json config = compressed(group_size.is_null() ? "channel" : "group");
  config["format"] = format;
  json& group = config["config_groups"]["group_0"];
  group["weights"]["type"] = "int";
  group["weights"]["num_bits"] = bits;
  group["weights"]["group_size"] = group_size;
  group["input_activations"] = nullptr;
  return config;
}

TEST(QuantizationFields, ReadsPackedIntegers) {
  EXPECT_EQ(packing(gptq()), (WeightPacking{Packing::kGptq, 4, 128}));
  json second = gptq();
  second["checkpoint_format"] = "gptq_v2";
  second["group_size"] = -1;
  second["bits"] = 8;
  EXPECT_EQ(packing(second), (WeightPacking{Packing::kGptqV2, 8, 0}));
  EXPECT_EQ(packing(awq()), (WeightPacking{Packing::kAwq, 4, 64}));
  EXPECT_EQ(packing(integers("pack-quantized", 4, 128)),
            (WeightPacking{Packing::kCompressed, 4, 128, false}));
  json asymmetric = integers("pack-quantized", 4, 32);
  asymmetric["config_groups"]["group_0"]["weights"]["symmetric"] = false;
  EXPECT_EQ(packing(asymmetric), (WeightPacking{Packing::kCompressed, 4, 32, true}));
  EXPECT_EQ(packing(integers("pack-quantized", 8, nullptr)),
            (WeightPacking{Packing::kCompressed, 8, 0, false}));
  EXPECT_EQ(packing(integers("int-quantized", 8, nullptr)),
            (WeightPacking{Packing::kPlainInt8, 8, 0, false}));
}

// As AutoRound 0.15.1 writes it.
json auto_round(const std::string& format) {
  return {{"quant_method", "auto-round"},
          {"autoround_version", "0.15.1"},
          {"bits", 4},
          {"block_name_to_quantize", "model.layers"},
          {"data_type", "int"},
          {"group_size", 128},
          {"packing_format", format},
          {"sym", true},
          {"extra_config", {{"lm_head", {{"bits", 16}, {"data_type", "float"}}}}}};
}

TEST(QuantizationFields, ReadsAutoRound) {
  EXPECT_EQ(packing(auto_round("auto_round:auto_gptq")), (WeightPacking{Packing::kGptq, 4, 128}));
  EXPECT_EQ(packing(auto_round("auto_round:auto_awq")), (WeightPacking{Packing::kAwq, 4, 128}));
  const auto with = [](const char* field, const json& value) {
    json config = auto_round("auto_round:auto_awq");
    config[field] = value;
    return refusal(config);
  };
  EXPECT_EQ(with("quant_method", "intel/auto-round"), "no error");
  EXPECT_THAT(with("packing_format", "auto_round"),
              HasSubstr("packing_format: \"auto_round\" is not supported; expected "
                        "auto_round:auto_gptq or auto_round:auto_awq"));
  EXPECT_THAT(with("packing_format", nullptr), HasSubstr("packing_format: is missing; expected"));
  EXPECT_THAT(with("data_type", "mx_fp"), HasSubstr("data_type: \"mx_fp\""));
  EXPECT_THAT(with("bits", 8), HasSubstr("bits: 8 is not supported; expected 4"));
  EXPECT_THAT(with("extra_config", {{"model.layers.0.mlp.up_proj", {{"bits", 8}}}}),
              HasSubstr("extra_config: \"model.layers.0.mlp.up_proj\" is quantized in another"));
  EXPECT_THAT(with("rotation_config", {{"type", "hadamard"}}),
              HasSubstr("rotation_config: is not supported"));
}

// Files without zero points have them all the same, each half of the range of codes.
TEST(QuantizationFields, ReadsSymmetricAwq) {
  json symmetric = awq();
  symmetric["zero_point"] = false;
  EXPECT_EQ(packing(symmetric), (WeightPacking{Packing::kAwq, 4, 64}));
}

json int8_inputs() {
  json config = integers("int-quantized", 8, nullptr);
  config["config_groups"]["group_0"]["input_activations"] = {
      {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", true}};
  return config;
}

TEST(QuantizationFields, ReadsInt8WithItsInputs) {
  EXPECT_EQ(scaling(int8_inputs()), (CodeScaling{1, 0, DType::kI8}));
  const auto with = [](const std::string& field, const json& value) {
    json config = int8_inputs();
    config[json::json_pointer("/config_groups/group_0" + field)] = value;
    return refusal(config);
  };
  EXPECT_THAT(with("/input_activations/symmetric", false),
              HasSubstr("group_0.input_activations.symmetric: false is not supported"));
  EXPECT_THAT(with("/input_activations/num_bits", 4), HasSubstr("num_bits: 4; expected 8"));
  EXPECT_THAT(with("/weights/num_bits", 4), HasSubstr("weights.num_bits: 4; expected 8"));
  EXPECT_THAT(with("/weights/symmetric", false), HasSubstr("weights.symmetric: false"));
  EXPECT_THAT(with("/weights/strategy", "tensor"), HasSubstr("weights.strategy: \"tensor\""));
}

TEST(QuantizationFields, RefusesOtherPackingsByName) {
  const auto with = [](json config, const char* field, const json& value) {
    config[field] = value;
    return refusal(config);
  };
  EXPECT_THAT(with(gptq(), "bits", 3), HasSubstr("quantization_config.bits: 3"));
  EXPECT_THAT(with(gptq(), "bits", nullptr), HasSubstr("quantization_config.bits"));
  EXPECT_THAT(with(gptq(), "group_size", 0), HasSubstr("group_size: is 0"));
  EXPECT_THAT(
      with(gptq(), "checkpoint_format", "marlin"),
      HasSubstr("checkpoint_format: \"marlin\" is not supported; expected gptq or gptq_v2"));
  EXPECT_THAT(with(gptq(), "is_marlin_format", true), HasSubstr("is_marlin_format: true"));
  EXPECT_THAT(with(gptq(), "pack_dtype", "int16"), HasSubstr("pack_dtype: \"int16\""));
  EXPECT_THAT(with(gptq(), "dynamic", {{"+:.*mlp.*", {{"bits", 8}}}}),
              HasSubstr("dynamic: \"+:.*mlp.*\" is not supported"));
  EXPECT_THAT(with(gptq(), "adapter", {{"name", "lora"}}), HasSubstr("adapter: is not supported"));
  EXPECT_THAT(with(awq(), "version", "gemv"), HasSubstr("version: \"gemv\""));
  EXPECT_THAT(with(awq(), "backend", "llm-awq"), HasSubstr("backend: \"llm-awq\""));
  EXPECT_THAT(with(awq(), "bits", 8), HasSubstr("bits: 8"));
  EXPECT_THAT(refusal(integers("pack-quantized", 3, 128)),
              HasSubstr("weights.num_bits: 3; expected 4 or 8"));
  json sparse = integers("pack-quantized", 4, 128);
  sparse["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  EXPECT_THAT(refusal(sparse), HasSubstr("sparsity_config.format: \"sparse-24-bitmask\""));
}

}  // namespace
}  // namespace sluice
