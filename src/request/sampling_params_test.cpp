#include "request/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace sluice {
namespace {

struct BadCase {
  const char* field;
  std::function<void(SamplingParams&)> spoil;
};

TEST(SamplingParams, DefaultsAreValid) { EXPECT_TRUE(validate(SamplingParams{}, 100)); }

TEST(SamplingParams, EveryBadFieldIsNamed) {
  const BadCase cases[] = {
      {"max_tokens", [](auto& p) { p.max_tokens = 0; }},
      {"max_tokens", [](auto& p) { p.max_tokens = -5; }},
      {"min_tokens", [](auto& p) { p.min_tokens = 17; }},
      {"n ", [](auto& p) { p.n = 0; }},
      {"temperature", [](auto& p) { p.temperature = -0.1F; }},
      {"temperature", [](auto& p) { p.temperature = std::nanf(""); }},
      {"top_p", [](auto& p) { p.top_p = 0; }},
      {"top_p", [](auto& p) { p.top_p = 1.5F; }},
      {"top_k", [](auto& p) { p.top_k = -2; }},
      {"min_p", [](auto& p) { p.min_p = 2; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = 3; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -3; }},
      {"logprobs", [](auto& p) { p.logprobs = 21; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{100, 1.0F}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{1, 101.0F}}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; }},
      {"stop", [](auto& p) { p.stop = {""}; }},
  };
  for (const BadCase& bad : cases) {
    SamplingParams params;
    bad.spoil(params);
    const Status status = validate(params, 100);
    ASSERT_FALSE(status) << bad.field;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().message.rfind(bad.field, 0), 0U) << status.error().message;
  }
}

}  // namespace
}  // namespace sluice
