#include "sim/deployment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Deployment on(std::string_view gpu, std::string_view model, std::int32_t tp, std::int32_t pp) {
  Deployment d;
  d.gpu = find_gpu(gpu).value();
  d.model = find_model_shape(model).value();
  d.tp = tp;
  d.pp = pp;
  return d;
}

TEST(Deployment, MemoryIsWeightsActivationsAndBlocks) {
  const Deployment d = on("a100-80g", "llama-3-8b", 1, 1);
  const MemoryPlan plan = plan_memory(d, 2048, 8192, 16).value();
  EXPECT_NEAR(plan.weights / 1e9, 16.06, 0.05);
  EXPECT_DOUBLE_EQ(plan.kv_per_token, 128 * 1024);  // as published for this model in BF16
  EXPECT_NEAR(plan.usable - plan.weights - plan.activations, plan.kv, 1);
  EXPECT_EQ(plan.num_blocks, static_cast<std::int32_t>(plan.kv / (16 * plan.kv_per_token)) + 1);
}

TEST(Deployment, LargerStepsLeaveFewerBlocks) {
  const Deployment d = on("a100-80g", "yi-34b", 2, 1);
  const auto blocks = [&](std::int64_t tokens) {
    return plan_memory(d, tokens, 8192, 16).value().num_blocks;
  };
  EXPECT_LT(blocks(16 * 8192), blocks(8192) * 2 / 3);
}

TEST(Deployment, RanksAndStagesShareWeightsAndKv) {
  const MemoryPlan whole = plan_memory(on("h200", "yi-34b", 1, 1), 512, 8192, 16).value();
  const MemoryPlan ranks = plan_memory(on("h200", "yi-34b", 2, 1), 512, 8192, 16).value();
  const MemoryPlan stages = plan_memory(on("h200", "yi-34b", 1, 2), 512, 8192, 16).value();
  EXPECT_NEAR(ranks.weights, whole.weights / 2, 1);
  EXPECT_NEAR(stages.weights, whole.weights / 2, 1);
  EXPECT_DOUBLE_EQ(ranks.kv_per_token, whole.kv_per_token / 2);
  EXPECT_DOUBLE_EQ(stages.kv_per_token, whole.kv_per_token / 2);
}

// With more ranks than KV heads, each holds one.
TEST(Deployment, KvHeadsAreCopiedWhenThereAreMoreRanks) {
  EXPECT_EQ(on("h200", "falcon-180b", 8, 1).rank_kv_heads(), 1);
  Deployment d = on("h200", "yi-34b", 14, 1);
  d.model.kv_heads = 7;
  EXPECT_EQ(d.rank_kv_heads(), 1);
}

TEST(Deployment, UnevenStagesAreLargestInFront) {
  const Deployment d = on("h200", "llama-3-8b", 1, 3);
  EXPECT_EQ(d.stage_layers(0), 11);
  EXPECT_EQ(d.stage_layers(1), 11);
  EXPECT_EQ(d.stage_layers(2), 10);
}

TEST(Deployment, AModelThatDoesNotFitSaysWhatIsMissing) {
  const auto plan = plan_memory(on("a40", "llama-2-70b", 1, 1), 512, 4096, 16);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(plan.error().message,
              AllOf(HasSubstr("llama-2-70b with tp 1 and pp 1"), HasSubstr("128.5 GiB for weights"),
                    HasSubstr("40.2 GiB to use"), HasSubstr("are missing"),
                    HasSubstr("raise --tp or --pp")));
}

TEST(Deployment, SplitsThatDoNotDivideAreRefused) {
  EXPECT_THAT(check_deployment(on("a40", "mistral-7b", 3, 1)).error().message,
              HasSubstr("tp 3 does not divide the 32 heads"));
  EXPECT_THAT(check_deployment(on("a40", "mistral-7b", 1, 33)).error().message,
              HasSubstr("pp 33 is more than the 32 layers"));
  EXPECT_THAT(check_deployment(on("a40", "mistral-7b", 0, 1)).error().message,
              HasSubstr("at least 1"));
  Deployment d = on("a40", "mistral-7b", 8, 1);
  d.model.kv_heads = 6;
  EXPECT_THAT(check_deployment(d).error().message, HasSubstr("do not divide each other"));
}

}  // namespace
}  // namespace sluice
