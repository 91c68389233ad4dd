// Dummy weights: the plan names what a checkpoint would hold; values are small, the same every
// time, and differ from row to row and from tensor to tensor.
#include "model/dummy_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "tensor/half.h"

namespace sluice {
namespace {

ModelConfig dummy_config(bool tied, bool biases) {
  auto config = parse_model_config(
      R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "attention_bias": )" +
      std::string(biases ? "true" : "false") + R"(, "tie_word_embeddings": )" +
      (tied ? "true}" : "false}"));
  EXPECT_TRUE(config) << config.error().message;
  return *config;
}

std::vector<std::byte> values_of(DummyValues& values, std::string_view tensor, DType dtype,
                                 std::size_t count) {
  std::vector<std::byte> all;
  values.for_each_piece(
      tensor, dtype, count * size_of(dtype),
      [&](std::span<const std::byte> piece) { all.insert(all.end(), piece.begin(), piece.end()); });
  return all;
}

TEST(DummyWeights, ThePlanHasWhatTheConfigurationAsksFor) {
  for (const bool tied : {false, true}) {
    for (const bool biases : {false, true}) {
      const ModelConfig config = dummy_config(tied, biases);
      const ModelWeightsPlan plan = plan_dummy_weights(config, DType::kBF16);
      EXPECT_EQ(plan.dtype, DType::kBF16);
      EXPECT_EQ(plan.tied, tied);
      EXPECT_EQ(plan.lm_head.tensor.name, tied ? plan.embedding.tensor.name : "lm_head.weight");
      EXPECT_EQ(plan.final_norm.tensor.name, "model.norm.weight");
      ASSERT_EQ(plan.layers.size(), 2U);
      const WeightSource& down = plan.layers[1][WeightRole::kDown];
      EXPECT_EQ(down.tensor.name, "model.layers.1.mlp.down_proj.weight");
      EXPECT_EQ(down.tensor.shape, (std::vector<std::int64_t>{64, 128}));
      EXPECT_EQ(down.tensor.bytes, 64U * 128U * 2U);
      EXPECT_EQ(down.sharding, Sharding::kRow);
      EXPECT_TRUE(is_dummy(down));
      EXPECT_EQ(plan.layers[0][WeightRole::kQBias].present(), biases);
      EXPECT_FALSE(plan.layers[0][WeightRole::kQNorm].present());
      EXPECT_FALSE(plan.layers[0][WeightRole::kEmbedding].present());
    }
  }
}

TEST(DummyWeights, ValuesAreSmallAndTheSameEveryTime) {
  constexpr std::size_t kCount = 5'000'000;  // more than are drawn: they go round
  DummyValues values;
  const auto bytes = values_of(values, "a", DType::kF32, kCount);
  ASSERT_EQ(bytes.size(), kCount * sizeof(float));
  std::vector<float> numbers(kCount);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  double sum = 0;
  double squares = 0;
  for (const float x : numbers) {
    ASSERT_LT(std::abs(x), 0.036F);
    sum += x;
    squares += double{x} * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 1e-4);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.02, 0.001);
  DummyValues again;
  EXPECT_EQ(values_of(again, "a", DType::kF32, kCount), bytes);
  EXPECT_NE(values_of(again, "b", DType::kF32, kCount), bytes);
}

TEST(DummyWeights, RowsDiffer) {
  constexpr std::size_t kWidth = 4096;
  constexpr std::size_t kRows = 3000;  // more elements than are drawn
  DummyValues values;
  const auto bytes =
      values_of(values, "model.layers.0.mlp.up_proj.weight", DType::kBF16, kWidth * kRows);
  std::set<std::vector<std::byte>> starts;
  for (std::size_t row = 0; row < kRows; ++row) {
    const auto start = bytes.begin() + static_cast<std::ptrdiff_t>(row * kWidth * 2);
    starts.emplace(start, start + 16);
  }
  EXPECT_EQ(starts.size(), kRows);
}

TEST(DummyWeights, HalvesAreTheSameNumbersRounded) {
  DummyValues values;
  const auto wide = values_of(values, "a", DType::kF32, 100);
  const auto narrow = values_of(values, "a", DType::kBF16, 100);
  for (std::size_t i = 0; i < 100; ++i) {
    float number = 0;
    std::uint16_t half = 0;
    std::memcpy(&number, &wide[i * 4], 4);
    std::memcpy(&half, &narrow[i * 2], 2);
    EXPECT_EQ(half, float_to_bf16(number));
  }
}

}  // namespace
}  // namespace sluice
