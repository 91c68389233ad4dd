#include "server/answer_size.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::size_t kPromptTokens = 1000;

AnswerSize size_of(const GenerationCall& call) {
  return whole_answer_size(call, call.sampling, kPromptTokens, 0);
}

TEST(AnswerSize, OrdinaryCallsAreFarBelowTheBounds) {
  GenerationCall call;
  call.sampling.max_tokens = 131072;
  EXPECT_LE(size_of(call).held, kFairAnswerBytes);
  EXPECT_TRUE(check_answer_size(call, size_of(call)));
  call.sampling.max_tokens = 4096;
  call.sampling.logprobs = 20;
  EXPECT_LE(size_of(call).held, kFairAnswerBytes);
  EXPECT_TRUE(check_answer_size(call, size_of(call)));
}

TEST(AnswerSize, ManyChoicesWithLogprobsAreRefusedUnlessStreamed) {
  GenerationCall call;
  call.sampling.max_tokens = 2000;
  call.sampling.logprobs = 20;
  call.sampling.n = 128;
  const auto refused = check_answer_size(call, size_of(call));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_EQ(refused.error().param, "logprobs");
  EXPECT_NE(refused.error().message.find("stream"), std::string::npos);
  call.stream = true;
  EXPECT_TRUE(check_answer_size(call, size_of(call)));
  call.stream = false;
  call.sampling.logprobs = -1;
  call.sampling.max_tokens = 131072;
  EXPECT_EQ(check_answer_size(call, size_of(call)).error().param, "max_tokens");
}

TEST(AnswerSize, IdsOfThePromptCountForEachChoice) {
  GenerationCall call;
  call.sampling.max_tokens = 1;
  call.sampling.n = 100;
  const AnswerSize without = size_of(call);
  call.return_token_ids = true;
  EXPECT_GE(size_of(call).json, without.json + 100 * kPromptTokens);
}

}  // namespace
}  // namespace sluice
