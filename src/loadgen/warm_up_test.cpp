#include "loadgen/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "loadgen/test_openai_server.h"

namespace sluice {
namespace {

using testing::HasSubstr;

LoadOptions load_options_for(const TestOpenAiServer& server) {
  LoadOptions options;
  options.client = server.client_options();
  options.form.model = "m";
  return options;
}

Workload late_workload() {
  Workload workload;
  workload.requests.push_back({std::chrono::hours(1), 8, 4, {}});
  return workload;
}

TEST(WarmUp, SendsAtOncePromptsThatTheRunDoesNotHave) {
  TestOpenAiServer server;
  const PromptMaker prompts({1, 2, 3, 4, 5, 6, 7, 8}, 1);
  const LoadOptions options = load_options_for(server);
  ASSERT_TRUE(warm_up(options, late_workload(), prompts, 3));
  Workload workload;
  workload.requests.assign(3, {Duration(0), 8, 4, {}});
  ASSERT_TRUE(run_load(options, workload, prompts, SystemClock()));
  std::vector<std::string> bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 6U);
  std::sort(bodies.begin(), bodies.end());
  EXPECT_EQ(std::unique(bodies.begin(), bodies.end()), bodies.end());
}

TEST(WarmUp, NoRequestsIsNoWarmUp) {
  TestOpenAiServer server;
  ASSERT_TRUE(warm_up(load_options_for(server), late_workload(), PromptMaker({1, 2}, 1), 0));
  EXPECT_TRUE(server.bodies().empty());
}

TEST(WarmUp, TheFirstFailureIsTheError) {
  TestOpenAiServer server;
  server.answer = [](const auto& exchange, int) {
    exchange->respond({400, "application/json", {}, R"({"error":{"message":"no such model"}})"});
  };
  const auto status = warm_up(load_options_for(server), late_workload(), PromptMaker({1, 2}, 1), 2);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("warm-up request"));
  EXPECT_THAT(status.error().message, HasSubstr("no such model"));
}

TEST(WarmUp, RequestsWithoutAnEndAreAnError) {
  TestOpenAiServer server;
  std::vector<TestOpenAiServer::ExchangePtr> held;
  server.answer = [&](TestOpenAiServer::ExchangePtr exchange, int) {
    held.push_back(std::move(exchange));
  };
  LoadOptions options = load_options_for(server);
  options.time_limit = std::chrono::milliseconds(50);
  const auto status = warm_up(options, late_workload(), PromptMaker({1, 2}, 1), 2);
  server.on_loop([&] { held.clear(); });
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("2 of 2 requests had no end"));
}

}  // namespace
}  // namespace sluice
