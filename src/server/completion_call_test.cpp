#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "server/generation_call.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string completion(std::string_view fields) {
  return R"({"model":"demo",)" + std::string(fields) + "}";
}

GenerationCall parsed(std::string_view fields) {
  auto call = parse_completion_call(completion(fields));
  EXPECT_TRUE(call) << fields << "\n" << call.error().message;
  return call ? *call : GenerationCall{};
}

TEST(ParseCompletionCall, ReadsTheFourFormsOfAPrompt) {
  EXPECT_THAT(parsed(R"("prompt":"a")").prompts, ElementsAre(CompletionPrompt("a")));
  EXPECT_THAT(parsed(R"("prompt":["a",""])").prompts,
              ElementsAre(CompletionPrompt("a"), CompletionPrompt("")));
  EXPECT_THAT(parsed(R"("prompt":[1,2.0])").prompts,
              ElementsAre(CompletionPrompt(std::vector<TokenId>{1, 2})));
  EXPECT_THAT(parsed(R"("prompt":[[1],[2,3]])").prompts,
              ElementsAre(CompletionPrompt(std::vector<TokenId>{1}),
                          CompletionPrompt(std::vector<TokenId>{2, 3})));
}

TEST(ParseCompletionCall, DefaultsAreThoseOfTheApi) {
  const GenerationCall call = parsed(R"("prompt":"a")");
  EXPECT_EQ(call.kind, ApiKind::kCompletion);
  EXPECT_EQ(call.sampling, SamplingParams{});
  EXPECT_EQ(call.sampling.max_tokens, 16);
  EXPECT_FALSE(call.given.max_tokens);
  EXPECT_FALSE(call.echo);
  EXPECT_TRUE(call.add_special_tokens);
}

TEST(ParseCompletionCall, ReadsItsOwnFields) {
  const GenerationCall call = parsed(R"("prompt":"a","max_tokens":5,"logprobs":0,"best_of":2,"n":2,
      "suffix":"","stop":"x","temperature":0,"add_special_tokens":false)");
  EXPECT_EQ(call.sampling.max_tokens, 5);
  EXPECT_TRUE(call.given.max_tokens);
  EXPECT_EQ(call.sampling.logprobs, 0);
  EXPECT_EQ(call.sampling.n, 2);
  EXPECT_THAT(call.sampling.stop, ElementsAre("x"));
  EXPECT_EQ(call.sampling.temperature, 0.0F);
  EXPECT_FALSE(call.add_special_tokens);
  EXPECT_TRUE(parsed(R"("prompt":"a","echo":true,"logprobs":null)").echo);
}

TEST(ParseCompletionCall, FaultsNameTheField) {
  std::string many = "\"a\"";
  for (std::size_t i = 0; i < kMaxPrompts; ++i) many += ",\"a\"";
  const struct {
    std::string fields;
    const char* param;
    const char* message;
    bool unsupported = false;
  } cases[] = {
      {R"("n":1)", "prompt", "is missing"},
      {R"("prompt":null)", "prompt", "is missing"},
      {R"("prompt":[])", "prompt", "empty array"},
      {R"("prompt":[[]])", "prompt[0]", "is empty"},
      {R"("prompt":{})", "prompt", "got an object"},
      {R"("prompt":5)", "prompt", "got 5"},
      {R"("prompt":[true])", "prompt[0]", "got true; expected a token id"},
      {R"("prompt":[1,"a"])", "prompt[1]", "got \"a\"; expected a token id"},
      {R"("prompt":["a",1])", "prompt[1]", "as the first prompt is"},
      {R"("prompt":[[1],"a"])", "prompt[1]", "array of token ids"},
      {R"("prompt":[[1],[2,-3]])", "prompt[1][1]", "got -3"},
      {R"("prompt":[2147483647])", "prompt[0]", "token id from 0 to 2147483646"},
      {R"("prompt":[)" + many + "]", "prompt", "got 257 prompts; at most 256"},
      {R"("prompt":["a","b","c","d","e","f","g","h","i"],"n":128)", "n", "at most 1024"},
      {R"("prompt":"a","max_tokens":0)", "max_tokens", "nothing would be answered"},
      {R"("prompt":"a","max_tokens":-1)", "max_tokens", "from 0"},
      {R"("prompt":"a","prompt_logprobs":21)", "prompt_logprobs", "from 0 to 20"},
      {R"("prompt":"a","prompt_logprobs":1,"stream":true)", "prompt_logprobs", "whole answer"},
      {R"("prompt":"a","echo":true,"logprobs":1,"stream":true,"n":2)", "n", "in a stream", true},
      {R"("prompt":"a","min_tokens":17)", "min_tokens", "max_tokens (16)"},
      {R"("prompt":"a","logprobs":true)", "logprobs", "expected a whole number from 0 to 20"},
      {R"("prompt":"a","logprobs":21)", "logprobs", "from 0 to 20"},
      {R"("prompt":"a","best_of":3)", "best_of", "got 3 with n 1", true},
      {R"("prompt":"a","suffix":"b")", "suffix", "inserted", true},
      {R"("prompt":"a","prompt_embeds":"b")", "prompt_embeds", "token ids", true},
      {R"("prompt":"a","messages":[])", "messages", "unknown field"},
      {R"("prompt":"a","logprob":1)", "logprob", "did you mean \"logprobs\"?"},
      {R"("prompt":"a","max_completion_tokens":1)", "max_completion_tokens", "unknown field"},
  };
  for (const auto& fault : cases) {
    const auto call = parse_completion_call(completion(fault.fields));
    ASSERT_FALSE(call) << fault.fields;
    EXPECT_EQ(call.error().status, 400);
    EXPECT_EQ(call.error().param, fault.param) << fault.fields;
    EXPECT_THAT(call.error().message, HasSubstr(fault.message)) << fault.fields;
    EXPECT_EQ(call.error().code, fault.unsupported ? "unsupported" : "") << fault.fields;
  }
}

TEST(ParseCompletionCall, AnEchoWithLogprobsScoresThePrompt) {
  const auto call =
      parse_completion_call(completion(R"("prompt":"a","echo":true,"logprobs":2,"max_tokens":0)"));
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_TRUE(call->prompt_only);
  EXPECT_EQ(call->sampling.max_tokens, 1);
  EXPECT_EQ(call->sampling.prompt_logprobs, 2);
  EXPECT_EQ(call->prompt_logprobs, -1) << "the answer has no field of that name";
  const auto both = parse_completion_call(
      completion(R"("prompt":"a","echo":true,"logprobs":2,"prompt_logprobs":5)"));
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_FALSE(both->prompt_only);
  EXPECT_EQ(both->sampling.prompt_logprobs, 5);
  EXPECT_EQ(both->prompt_logprobs, 5);
}

TEST(ParseCompletionCall, ABrokenBodyHasNoField) {
  const auto call = parse_completion_call("{\"model\":");
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().param, "");
  EXPECT_THAT(call.error().message, HasSubstr("byte offset 9"));
}

}  // namespace
}  // namespace sluice
