#include "load/server_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "load/test_openai_server.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(ServerFacts, TheModelIsTheFirstOrTheOneAskedFor) {
  TestOpenAiServer server;
  server.models.body =
      R"({"data":[{"id":"a","max_model_len":10},{"id":"b","max_model_len":20},{"id":"c"}]})";
  const auto options = server.client_options();
  EXPECT_EQ(ask_models(options, "")->model, "a");
  EXPECT_EQ(ask_models(options, "")->max_model_len, 10);
  EXPECT_EQ(ask_models(options, "b")->max_model_len, 20);
  EXPECT_EQ(ask_models(options, "c")->max_model_len, 0);
  const auto unknown = ask_models(options, "x");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message, HasSubstr("the server has a, b, c"));
}

TEST(ServerFacts, WhatIsNoOpenAiServerIsSaidToBeNone) {
  TestOpenAiServer server;
  const auto options = server.client_options();
  server.models.body = "<html>";
  EXPECT_THAT(ask_models(options, "").error().message, HasSubstr("no JSON object"));
  server.models.body = R"({"data":[{"name":"a"},7]})";
  EXPECT_THAT(ask_models(options, "").error().message, HasSubstr("names no model"));
  server.models = {401, "application/json", {}, R"({"error":{"message":"no key"}})"};
  EXPECT_THAT(ask_models(options, "").error().message,
              testing::AllOf(HasSubstr("401: no key"), HasSubstr("--api-key")));
  server.models = {503, "application/json", {}, R"({"error":{"message":"wait"}})"};
  EXPECT_THAT(ask_models(options, "").error().message, HasSubstr("still be loading"));
}

TEST(ServerFacts, PromptsAreMadeOfWhatTokenizeGives) {
  TestOpenAiServer server;
  const auto options = server.client_options();
  EXPECT_THAT(ask_token_ids(options, "m").error().message,
              testing::AllOf(HasSubstr("404"), HasSubstr("--vocab-size")));
  server.tokenize = {200, "application/json", {}, R"({"tokens":[3,3,4]})"};
  EXPECT_THAT(ask_token_ids(options, "m").error().message, HasSubstr("2 different tokens"));
  std::vector<int> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(100 - i % 20);
  server.tokenize.body = fmt::format("{{\"tokens\":[{}]}}", fmt::join(tokens, ","));
  const auto ids = ask_token_ids(options, "m");
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(ids->size(), 20U);
  EXPECT_EQ(ids->front(), 81);
}

}  // namespace
}  // namespace sluice
