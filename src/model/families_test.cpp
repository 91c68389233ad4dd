#include "model/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

ModelConfig small_config(bool biases, bool tied) {
  ModelConfig config;
  config.vocab_size = 10;
  config.hidden_size = 8;
  config.num_layers = 3;
  config.tie_embeddings = tied;
  LayerConfig layer;
  layer.num_heads = 2;
  layer.num_kv_heads = 1;
  layer.head_dim = 6;
  layer.intermediate_size = 5;
  layer.qkv_bias = layer.o_bias = layer.mlp_bias = layer.qk_norm = biases;
  config.layers.assign(3, layer);
  return config;
}

struct Stored {
  std::vector<std::int64_t> shape;
  std::string dtype = "BF16";
};
using Tensors = std::map<std::string, Stored>;

Tensors tensors_of(const ModelConfig& config) {
  Tensors tensors;
  for (std::size_t r = 0; r < kNumWeightRoles; ++r) {
    const auto role = static_cast<WeightRole>(r);
    for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
      const auto shape = weight_shape(config, role, layer);
      if (!shape.empty()) tensors[weight_name(config.family, role, layer)] = {shape};
    }
  }
  if (config.tie_embeddings) tensors.erase("lm_head.weight");
  return tensors;
}

void write_tensors(const TempDirectory& directory, const Tensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::size_t end = 0;
  for (const auto& [name, stored] : tensors) {
    std::size_t bytes = stored.dtype == "F32"                               ? 4
                        : stored.dtype == "I8" || stored.dtype == "F8_E4M3" ? 1
                                                                            : 2;
    for (const auto dim : stored.shape) bytes *= static_cast<std::size_t>(dim);
    header[name] = {
        {"dtype", stored.dtype}, {"shape", stored.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  directory.write("model.safetensors",
                  safetensors_bytes(dump_json(header), std::string(end, '\0')));
}

Result<ModelWeightsPlan> resolve(const ModelConfig& config, const Tensors& tensors,
                                 std::int32_t first = 0, std::int32_t last = 3) {
  const TempDirectory directory;
  write_tensors(directory, tensors);
  auto checkpoint = Checkpoint::open(directory.path());
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return resolve_weights(config, *checkpoint, first, last);
}

std::string error_of(const ModelConfig& config, const Tensors& tensors) {
  auto plan = resolve(config, tensors);
  return plan ? "no error" : plan.error().message;
}

TEST(Families, NamesShapesAndShardingOfTheTable) {
  const ModelConfig config = small_config(true, false);
  EXPECT_EQ(weight_name(Family::kLlama, WeightRole::kQ, 17),
            "model.layers.17.self_attn.q_proj.weight");
  EXPECT_EQ(weight_name(Family::kQwen3, WeightRole::kKNorm, 0),
            "model.layers.0.self_attn.k_norm.weight");
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(weight_shape(config, WeightRole::kEmbedding, 0), (Shape{10, 8}));
  EXPECT_EQ(weight_shape(config, WeightRole::kQ, 0), (Shape{12, 8}));
  EXPECT_EQ(weight_shape(config, WeightRole::kV, 0), (Shape{6, 8}));
  EXPECT_EQ(weight_shape(config, WeightRole::kO, 0), (Shape{8, 12}));
  EXPECT_EQ(weight_shape(config, WeightRole::kQNorm, 0), (Shape{6}));
  EXPECT_EQ(weight_shape(config, WeightRole::kDown, 0), (Shape{8, 5}));
  EXPECT_TRUE(weight_shape(small_config(false, false), WeightRole::kQBias, 0).empty());
  EXPECT_EQ(weight_sharding(Family::kQwen3, WeightRole::kGate), Sharding::kColumn);
  EXPECT_EQ(weight_sharding(Family::kQwen3, WeightRole::kDown), Sharding::kRow);
  EXPECT_EQ(weight_sharding(Family::kQwen3, WeightRole::kOBias), Sharding::kReplicated);
  EXPECT_EQ(weight_sharding(Family::kQwen3, WeightRole::kLmHead), Sharding::kVocabulary);
}

TEST(ResolveWeights, FindsEveryWeight) {
  for (const bool biases : {false, true}) {
    const ModelConfig config = small_config(biases, false);
    auto plan = resolve(config, tensors_of(config));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->dtype, DType::kBF16);
    EXPECT_FALSE(plan->tied);
    EXPECT_EQ(plan->lm_head.tensor.name, "lm_head.weight");
    ASSERT_EQ(plan->layers.size(), 3U);
    EXPECT_EQ(plan->layer(2)[WeightRole::kUp].tensor.name, "model.layers.2.mlp.up_proj.weight");
    EXPECT_EQ(plan->layer(0)[WeightRole::kQBias].present(), biases);
    EXPECT_EQ(plan->layer(0)[WeightRole::kKNorm].present(), biases);
    EXPECT_FALSE(plan->layer(0)[WeightRole::kEmbedding].present());
  }
}

TEST(ResolveWeights, ResolvesPipelineStages) {
  const ModelConfig config = small_config(false, false);
  Tensors tensors = tensors_of(config);
  auto middle = resolve(config, tensors, 1, 2);
  ASSERT_TRUE(middle);
  EXPECT_FALSE(middle->embedding.present() || middle->lm_head.present());
  EXPECT_EQ(middle->layer(1)[WeightRole::kQ].tensor.name, "model.layers.1.self_attn.q_proj.weight");
  auto last = resolve(config, tensors, 2, 3);
  ASSERT_TRUE(last);
  EXPECT_TRUE(!last->embedding.present() && last->lm_head.present() && last->final_norm.present());
  // A stage asks for its own layers only.
  for (const char* name : {"model.norm.weight", "lm_head.weight"}) tensors.erase(name);
  std::erase_if(tensors, [](const auto& t) { return t.first.starts_with("model.layers.2."); });
  EXPECT_TRUE(resolve(config, tensors, 0, 2));
  EXPECT_FALSE(resolve(config, tensors, 0, 3));
}

TEST(ResolveWeights, TiesEmbeddings) {
  const ModelConfig tied = small_config(false, true);
  auto plan = resolve(tied, tensors_of(tied));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->tied);
  EXPECT_EQ(plan->lm_head.tensor.name, "model.embed_tokens.weight");
  auto last = resolve(tied, tensors_of(tied), 2, 3);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->lm_head.tensor.name, "model.embed_tokens.weight");

  // Not tied by config.json, but there is no lm_head: with a warning, the embedding.
  const ModelConfig untied = small_config(false, false);
  EXPECT_TRUE(resolve(untied, tensors_of(tied))->tied);

  // Tied by config.json, and only lm_head is there.
  Tensors swapped = tensors_of(untied);
  swapped.erase("model.embed_tokens.weight");
  auto other = resolve(tied, swapped);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->embedding.tensor.name, "lm_head.weight");
  EXPECT_FALSE(resolve(untied, swapped));

  // Tied by config.json, and both are there: each is used for what it is.
  auto both = resolve(tied, tensors_of(untied));
  ASSERT_TRUE(both);
  EXPECT_FALSE(both->tied);
  EXPECT_EQ(both->lm_head.tensor.name, "lm_head.weight");
}

TEST(ResolveWeights, NamesMissingAndMisshapenTensors) {
  const ModelConfig config = small_config(true, false);
  for (const auto& [name, stored] : tensors_of(config)) {
    if (name == "lm_head.weight") continue;
    Tensors tensors = tensors_of(config);
    tensors.erase(name);
    EXPECT_THAT(error_of(config, tensors),
                HasSubstr("tensor \"" + name + "\" is missing; expected shape " +
                          shape_text(stored.shape)));
    tensors[name] = stored;
    tensors[name].shape.front() += 1;
    EXPECT_THAT(error_of(config, tensors),
                HasSubstr("model.safetensors: tensor \"" + name + "\" has shape " +
                          shape_text(tensors[name].shape) + "; config.json asks for " +
                          shape_text(stored.shape)));
    tensors[name].shape = stored.shape;
    tensors[name].shape.push_back(1);
    EXPECT_THAT(error_of(config, tensors), HasSubstr("has shape"));
  }
}

TEST(ResolveWeights, KeepsToOneDtype) {
  const ModelConfig config = small_config(true, false);
  Tensors tensors = tensors_of(config);
  // Norms and biases may be F32.
  for (auto& [name, stored] : tensors) {
    if (stored.shape.size() == 1) stored.dtype = "F32";
  }
  auto plan = resolve(config, tensors);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->dtype, DType::kBF16);
  EXPECT_EQ(plan->layer(0)[WeightRole::kInputNorm].dtype, DType::kF32);

  tensors["model.norm.weight"].dtype = "F16";
  EXPECT_THAT(error_of(config, tensors), HasSubstr("tensor \"model.norm.weight\" is f16"));
  tensors["model.norm.weight"].dtype = "F32";
  tensors["model.layers.1.mlp.up_proj.weight"].dtype = "F32";
  EXPECT_THAT(error_of(config, tensors),
              HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight\" is f32, but "
                        "\"model.embed_tokens.weight\" is bf16"));
  tensors["model.layers.1.mlp.up_proj.weight"].dtype = "I8";
  EXPECT_THAT(error_of(config, tensors),
              HasSubstr("\"model.layers.1.mlp.up_proj.weight\" is I8, but config.json has no "));
}

TEST(ResolveWeights, FindsScalesOfFp8Matrices) {
  ModelConfig config = small_config(true, false);
  config.scaling = CodeScaling{4, 0};  // [12, 8] has 3 by 1 of them
  Tensors tensors = tensors_of(config);
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  tensors[q].dtype = "F8_E4M3";
  EXPECT_THAT(error_of(config, tensors), HasSubstr("\"" + q + "_scale_inv\" or"));
  for (const std::string suffix : {"_scale_inv", "_scale"}) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3, 1}, {3}}) {
      Tensors scaled = tensors;
      scaled[q + suffix] = {shape, "F32"};
      const auto plan = resolve(config, scaled);
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_TRUE(plan->codes);
      EXPECT_EQ(plan->dtype, DType::kBF16);
      const WeightSource& source = plan->layer(1)[WeightRole::kQ];
      EXPECT_EQ(source.dtype, DType::kF8E4M3);
      EXPECT_EQ(source.scales.name, q + suffix);
      EXPECT_EQ(source.block_rows, 4);
      EXPECT_EQ(source.block_cols, 8);
      EXPECT_TRUE(plan->layer(0)[WeightRole::kQ].scales.name.empty());
    }
  }
  tensors[q + "_scale"] = {{2, 1}, "BF16"};
  EXPECT_THAT(error_of(config, tensors),
              HasSubstr("_scale\" has shape [2, 1]; blocks of 4 by 8 (config.json: "
                        "quantization_config) make [3, 1] of [12, 8]"));
  tensors[q + "_scale"] = {{3, 1}, "F8_E4M3"};
  EXPECT_THAT(error_of(config, tensors), HasSubstr("scales in F8_E4M3"));
  tensors[q + "_scale"] = {{3, 1}, "BF16"};
  tensors["model.embed_tokens.weight"].dtype = "F8_E4M3";
  EXPECT_THAT(error_of(config, tensors),
              HasSubstr("\"model.embed_tokens.weight\" is F8_E4M3; exp"));
  tensors["model.embed_tokens.weight"].dtype = "BF16";
  config.scaling.reset();
  EXPECT_THAT(error_of(config, tensors), HasSubstr("config.json has no quantization_config"));
}

TEST(ResolveWeights, MatricesOfAProductAreAllInInt8OrNone) {
  ModelConfig config = small_config(false, false);
  config.scaling = CodeScaling{1, 0, DType::kI8};
  Tensors tensors = tensors_of(config);
  const auto store = [&](const std::string& module) {
    const std::string name = "model.layers.0." + module + ".weight";
    tensors[name].dtype = "I8";
    tensors[name + "_scale"] = {{tensors[name].shape[0], 1}, "BF16"};
  };
  store("self_attn.q_proj");
  EXPECT_THAT(error_of(config, tensors),
              HasSubstr("k_proj.weight\" is bf16, but \"model.layers.0.self_attn.q_proj.weight\" "
                        "is int8; expected q, k and v, or gate and up, all in int8 or none"));
  store("self_attn.k_proj");
  store("self_attn.v_proj");
  store("mlp.down_proj");
  const auto plan = resolve(config, tensors);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->codes, DType::kI8);
  const WeightSource& source = plan->layer(0)[WeightRole::kQ];
  EXPECT_EQ(source.block_rows, 1);
  EXPECT_EQ(source.block_cols, source.tensor.shape[1]);
  store("mlp.up_proj");
  EXPECT_THAT(error_of(config, tensors), HasSubstr("up_proj.weight\" is int8, but "));
}

TEST(ResolveWeights, SaysThatPackedMatricesNeedAField) {
  const ModelConfig config = small_config(false, false);
  Tensors tensors = tensors_of(config);
  tensors.erase("model.layers.0.self_attn.q_proj.weight");
  tensors["model.layers.0.self_attn.q_proj.qweight"] = {{1, 8}};
  EXPECT_THAT(
      error_of(config, tensors),
      HasSubstr("q_proj.qweight\" is quantized, but config.json: quantization_config does"));
}

TEST(ResolveWeights, OneScaleMayBeAScalar) {
  ModelConfig config = small_config(false, false);
  config.scaling = CodeScaling{};
  Tensors tensors = tensors_of(config);
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  tensors[down].dtype = "F8_E4M3";
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {1}, {1, 1}}) {
    tensors[down + "_scale"] = {shape, "F32"};
    EXPECT_EQ(error_of(config, tensors), "no error");
  }
  // A stage that has no other matrices.
  const auto stage = resolve(config, tensors, 1, 2);
  ASSERT_TRUE(stage) << stage.error().message;
  EXPECT_FALSE(stage->codes);
}

TEST(ResolveWeights, LeavesOtherTensorsAlone) {
  const ModelConfig config = small_config(false, false);
  Tensors tensors = tensors_of(config);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{3}, "F32"};
  tensors["model.layers.0.self_attn.q_proj.bias"] = {{12}, "I8"};
  tensors["six"] = {{1, 1, 1, 1, 1, 1}, "F32"};
  EXPECT_TRUE(resolve(config, tensors));
}

TEST(ResolveWeights, LayersThatTheConfigLeavesOutAreCounted) {
  ModelConfig config = small_config(false, false);
  const Tensors tensors = tensors_of(config);
  config.num_layers = 1;
  config.layers.resize(1);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(resolve(config, tensors, 0, 1));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("the checkpoint has 3 layers, config.json: num_hidden_layers is 1; the last "
                "2 are not used"));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(resolve(small_config(false, false), tensors));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace sluice
