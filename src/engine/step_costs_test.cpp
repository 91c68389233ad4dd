#include "engine/step_costs.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

ModelConfig two_layers() {
  ModelConfig config;
  config.hidden_size = 100;
  config.vocab_size = 1000;
  LayerConfig layer;
  layer.num_heads = 4;
  layer.num_kv_heads = 2;
  layer.head_dim = 25;
  layer.intermediate_size = 300;
  config.layers = {layer, layer};
  config.num_layers = 2;
  return config;
}

TEST(StepCosts, FollowFromTheModelsShape) {
  KvLayout kv;
  kv.block_size = 16;
  kv.block_bytes = 16 * 2 * 2 * 50 * 2;  // K and V of two layers, 50 wide, in 16 bits
  const StepCosts costs = step_costs(
      two_layers(), {.matrices = DType::kF8E4M3, .others = DType::kBF16, .ends = DType::kBF16}, kv);
  // Each layer has 100 x (100 + 50 + 50 + 100 + 3 x 300) weights.
  constexpr double kWeights = 2 * 100 * 1200;
  EXPECT_DOUBLE_EQ(costs.pair_tokens, 2 * 2 * 100 / kWeights);
  EXPECT_DOUBLE_EQ(costs.position_reads, 400 / (kWeights + 2.0 * 100 * 1000));
  EXPECT_EQ(costs.window, 0);
}

TEST(StepCosts, TheWindowIsTheLargestUnlessALayerSeesAll) {
  ModelConfig config = two_layers();
  KvLayout kv;
  kv.block_size = 16;
  kv.block_bytes = 64;
  config.layers[0].window = 30;
  EXPECT_EQ(step_costs(config, {}, kv).window, 0);
  config.layers[1].window = 50;
  EXPECT_EQ(step_costs(config, {}, kv).window, 50);
}

}  // namespace
}  // namespace sluice
