#include "loadgen/server_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/text.h"
#include "loadgen/test_openai_server.h"

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

TEST(ServerFacts, AnotherKindOfServerIsNamedAsSuch) {
  TestOpenAiServer server;
  const auto options = server.client_options();
  server.models.body = "<html>";
  EXPECT_THAT(ask_models(options, "").error().message, HasSubstr("not a JSON object"));
  server.models.body = R"({"data":[{"name":"a"},7]})";
  EXPECT_THAT(ask_models(options, "").error().message, HasSubstr("lists no model"));
  server.models = {401, "application/json", {}, R"({"error":{"message":"no key"}})"};
  EXPECT_THAT(ask_models(options, "").error().message,
              testing::AllOf(HasSubstr("401: no key"), HasSubstr("--api-key")));
  server.models = {503, "application/json", {}, R"({"error":{"message":"wait"}})"};
  EXPECT_THAT(ask_models(options, "").error().message, HasSubstr("still be loading"));
}

TEST(ServerFacts, AServerThatLoadsIsWaitedFor) {
  const SystemClock clock;
  TestOpenAiServer server;
  const auto options = server.client_options();
  server.loading = 2;  // one that has no /ready: its models are asked for
  EXPECT_TRUE(await_ready(options, std::chrono::seconds(60), clock));
  EXPECT_EQ(server.loading, 0);
  server.ready.status = 200;
  server.loading = 1;
  EXPECT_TRUE(await_ready(options, std::chrono::seconds(60), clock));
  // One that wants a key is ready: who asks next is told what is wrong.
  server.ready.status = 404;
  server.models.status = 401;
  EXPECT_TRUE(await_ready(options, std::chrono::seconds(60), clock));
}

TEST(ServerFacts, TheWaitForAServerHasAnEnd) {
  const SystemClock clock;
  TestOpenAiServer server;
  server.loading = 1 << 30;
  const auto loading = await_ready(server.client_options(), std::chrono::milliseconds(300), clock);
  ASSERT_FALSE(loading);
  EXPECT_EQ(loading.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(loading.error().message,
              testing::AllOf(HasSubstr("not ready after 0.3 s"), HasSubstr("503: loading")));
  // No server at all.
  const auto gone = server.client_options();
  server.on_loop([&] { server.die(); });
  EXPECT_FALSE(await_ready(gone, std::chrono::milliseconds(100), clock));
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
  server.tokenize.body = fmt::format("{{\"tokens\":[{}]}}", join(tokens, ","));
  const auto ids = ask_token_ids(options, "m");
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(ids->size(), 20U);
  EXPECT_EQ(ids->front(), 81);
}

}  // namespace
}  // namespace sluice
