#include "front/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr EngineLimits kLimits{.vocab_size = 100, .max_model_len = 64, .num_adapters = 0};

GenerationDefaults model_defaults() {
  GenerationDefaults defaults;
  defaults.temperature = 0.6;
  defaults.top_p = 0.9;
  defaults.top_k = 20;
  defaults.min_p = 0.05;
  defaults.repetition_penalty = 1.1;
  return defaults;
}

TEST(SamplingDefaults, SilentFieldsTakeTheModels) {
  SamplingParams params;
  apply_generation_defaults({}, model_defaults(), MissingMaxTokens::kKeep, 0, params);
  EXPECT_FLOAT_EQ(params.temperature, 0.6F);
  EXPECT_FLOAT_EQ(params.top_p, 0.9F);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_FLOAT_EQ(params.min_p, 0.05F);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.1F);
  EXPECT_EQ(params.max_tokens, 16);
}

TEST(SamplingDefaults, GivenFieldsStay) {
  const GivenSampling given{.temperature = true,
                            .top_p = true,
                            .top_k = true,
                            .min_p = true,
                            .repetition_penalty = true,
                            .max_tokens = true};
  GenerationDefaults defaults = model_defaults();
  defaults.do_sample = false;
  defaults.max_new_tokens = 7;
  SamplingParams params;
  const SamplingParams before = params;
  apply_generation_defaults(given, defaults, MissingMaxTokens::kModelOrContext, 40, params);
  EXPECT_EQ(params, before);
}

TEST(SamplingDefaults, ModelsThatDoNotSampleAreGreedy) {
  GenerationDefaults defaults = model_defaults();
  defaults.do_sample = false;
  SamplingParams params;
  apply_generation_defaults({}, defaults, MissingMaxTokens::kKeep, 0, params);
  EXPECT_EQ(params.temperature, 0);
}

std::int32_t completed_max_tokens(MissingMaxTokens missing, std::optional<std::int32_t> model,
                                  std::optional<std::int32_t> asked, std::size_t prompt) {
  GenerationDefaults defaults;
  defaults.max_new_tokens = model;
  SamplingParams params;
  if (asked) params.max_tokens = *asked;
  const auto status = complete_sampling({.max_tokens = asked.has_value()}, defaults, missing,
                                        kLimits, prompt, params);
  EXPECT_TRUE(status);
  return params.max_tokens;
}

TEST(SamplingDefaults, MaxTokensRules) {
  using enum MissingMaxTokens;
  // Chat: the model's, else the rest of the context.
  EXPECT_EQ(completed_max_tokens(kModelOrContext, {}, {}, 10), 54);
  EXPECT_EQ(completed_max_tokens(kModelOrContext, 30, {}, 10), 30);
  EXPECT_EQ(completed_max_tokens(kModelOrContext, 300, {}, 10), 54);
  EXPECT_EQ(completed_max_tokens(kModelOrContext, 30, 40, 10), 40);
  // Completion: the parser's default.
  EXPECT_EQ(completed_max_tokens(kKeep, 30, {}, 10), 16);
  // The context is the end of all.
  EXPECT_EQ(completed_max_tokens(kKeep, {}, {}, 60), 4);
  EXPECT_EQ(completed_max_tokens(kKeep, {}, 1000, 63), 1);
  EXPECT_EQ(completed_max_tokens(kModelOrKeep, {}, {}, 1), 16);
  EXPECT_EQ(completed_max_tokens(kModelOrKeep, 20, {}, 1), 20);
}

TEST(SamplingDefaults, MinTokensOutliveDefaultsAndClamp) {
  GenerationDefaults defaults;
  defaults.max_new_tokens = 5;
  SamplingParams params;
  params.min_tokens = 9;
  ASSERT_TRUE(
      complete_sampling({}, defaults, MissingMaxTokens::kModelOrContext, kLimits, 10, params));
  EXPECT_EQ(params.max_tokens, 9);
  params.max_tokens = 50;
  params.min_tokens = 50;
  ASSERT_TRUE(complete_sampling({.max_tokens = true}, defaults, MissingMaxTokens::kKeep, kLimits,
                                60, params));
  EXPECT_EQ(params.max_tokens, 4);
  EXPECT_EQ(params.min_tokens, 4);
}

TEST(SamplingDefaults, ErrorsNameTheField) {
  SamplingParams params;
  params.logit_bias = {{100, 1.0F}};
  const auto status = complete_sampling({}, {}, MissingMaxTokens::kKeep, kLimits, 10, params);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("logit_bias names token 100"));
}

}  // namespace
}  // namespace sluice
