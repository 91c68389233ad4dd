#include "model/quantization_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Result<std::optional<Fp8Scaling>> read(const json& quantization) {
  const json config = {{"quantization_config", quantization}};
  return read_quantization(JsonFields(config, "config.json: "));
}

std::string refusal(const json& quantization) {
  const auto result = read(quantization);
  return result ? "no error" : result.error().message;
}

Fp8Scaling scaling(const json& quantization) {
  const auto result = read(quantization);
  EXPECT_TRUE(result) << result.error().message;
  return result && *result ? **result : Fp8Scaling{-1, -1};
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
  EXPECT_EQ(scaling(fp8()), (Fp8Scaling{128, 64}));
  json tensor = fp8();
  tensor.erase("weight_block_size");
  tensor["activation_scheme"] = "static";
  EXPECT_EQ(scaling(tensor), Fp8Scaling{}) << "one scale a matrix";
  EXPECT_EQ(scaling(compressed("tensor")), Fp8Scaling{});
  EXPECT_EQ(scaling(compressed("channel")), (Fp8Scaling{1, 0}));
  EXPECT_EQ(scaling(compressed("block")), (Fp8Scaling{128, 128}));
  const auto none = read(nullptr);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

TEST(QuantizationFields, RefusesOthersByName) {
  EXPECT_THAT(
      refusal({{"quant_method", "gptq"}, {"bits", 4}}),
      HasSubstr("config.json: quantization_config.quant_method: \"gptq\" is not supported"));
  EXPECT_THAT(refusal(json::object()), HasSubstr("quant_method: null is not supported"));
  EXPECT_THAT(refusal("fp8"), HasSubstr("config.json: quantization_config: expected an object"));
  const auto with = [](json config, const json::json_pointer& at, const json& value) {
    config[at] = value;
    return refusal(config);
  };
  EXPECT_THAT(with(fp8(), "/fmt"_json_pointer, "e5m2"), HasSubstr(".fmt: \"e5m2\""));
  EXPECT_THAT(with(fp8(), "/activation_scheme"_json_pointer, "odd"),
              HasSubstr("activation_scheme"));
  EXPECT_THAT(with(fp8(), "/kv_cache_scheme"_json_pointer, "static"),
              HasSubstr("\"kv_cache_scheme\": is unknown"));
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
  EXPECT_THAT(with(compressed("tensor"), "/format"_json_pointer, "pack-quantized"),
              HasSubstr("format: \"pack-quantized\""));
  EXPECT_THAT(with(compressed("tensor"), "/config_groups/group_1"_json_pointer, json::object()),
              HasSubstr("config_groups: expected an object with one group"));
  EXPECT_THAT(with(compressed("tensor"), "/kv_cache_scheme"_json_pointer, {{"num_bits", 8}}),
              HasSubstr("kv_cache_scheme"));
}

}  // namespace
}  // namespace sluice
