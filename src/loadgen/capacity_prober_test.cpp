#include "loadgen/capacity_prober.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/json.h"
#include "loadgen/test_openai_server.h"

namespace sluice {
namespace {

using testing::HasSubstr;

CapacityProberOptions options_for(const TestOpenAiServer& server) {
  CapacityProberOptions options;
  options.load.client = server.client_options();
  options.load.form.model = "m";
  options.workload.lengths = "fixed:8,4";
  options.workload.count = 20;
  options.token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
  options.percentiles = {99};
  options.probe_seconds = 0.1;
  return options;
}

// `fast` requests waited up to 0.1 s, `slow` ones up to 10 s.
std::string metrics_text(int fast, int slow, int running = 0) {
  return fmt::format(
      "sluice:request_queue_time_seconds_bucket{{le=\"0.1\"}} {}\n"
      "sluice:request_queue_time_seconds_bucket{{le=\"10\"}} {}\n"
      "sluice:request_queue_time_seconds_bucket{{le=\"+Inf\"}} {}\n"
      "sluice:num_requests_running {}\n",
      fast, fast + slow, fast + slow, running);
}

TEST(CapacityProber, TheDelayComesFromTheServersHistogram) {
  TestOpenAiServer server;
  server.metrics = {200, "text/plain", {}, metrics_text(1000, 0)};
  int slow = 0;
  server.answer = [&](const auto& exchange, int) {
    server.metrics.body = metrics_text(1000, ++slow);
    TestOpenAiServer::stream_tokens(*exchange, 4, 4);
  };
  CapacityProberOptions options = options_for(server);
  int ended = 0;
  options.run_ended = [&] { ++ended; };
  CapacityProber prober(std::move(options));
  ASSERT_TRUE(prober.prepare());
  EXPECT_EQ(prober.delay_source(), "server histogram");
  EXPECT_TRUE(server.bodies().empty());  // nothing had to be measured
  const auto probe = prober.probe(400);
  ASSERT_TRUE(probe) << probe.error().message;
  EXPECT_EQ(probe->rate, 400);
  // Only what was recorded during the probe counts: all of it between 0.1 and 10 s.
  EXPECT_GT(probe->median_scheduling_delay, std::chrono::milliseconds(100));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(server.bodies().size(), 40U);  // 0.1 s at this rate, more than the workload's 20
  ASSERT_TRUE(prober.probe(100));
  const auto bodies = server.bodies();
  EXPECT_EQ(std::set<std::string>(bodies.begin(), bodies.end()).size(), 60U);
  ASSERT_EQ(prober.outcomes().size(), 2U);
  const auto json = parse_json(prober.outcomes()[0].json);
  EXPECT_EQ(json["completed"], 40);
  EXPECT_EQ(json["request_rate"], 400);
}

TEST(CapacityProber, WithoutAHistogramTheDelayIsEstimated) {
  TestOpenAiServer server;
  CapacityProber prober(options_for(server));
  ASSERT_TRUE(prober.prepare());
  EXPECT_EQ(prober.delay_source(), "TTFT above the unloaded one");
  EXPECT_EQ(server.bodies().size(), 8U);  // one at a time
  const auto probe = prober.probe(200);
  ASSERT_TRUE(probe) << probe.error().message;
  EXPECT_GE(probe->median_scheduling_delay, Duration(0));
  EXPECT_LT(probe->median_scheduling_delay, std::chrono::seconds(5));
}

TEST(CapacityProber, AProbeWithFailedRequestsMissesEveryObjective) {
  TestOpenAiServer server;
  server.metrics = {200, "text/plain", {}, metrics_text(0, 0)};
  server.answer = [](const auto& exchange, int number) {
    if (number % 2 == 0) return TestOpenAiServer::stream_tokens(*exchange, 4, 4);
    exchange->respond({500, "application/json", {}, R"({"error":{"message":"broken"}})"});
  };
  CapacityProber prober(options_for(server));
  ASSERT_TRUE(prober.prepare());
  const auto probe = prober.probe(200);
  ASSERT_TRUE(probe) << probe.error().message;
  EXPECT_EQ(probe->median_scheduling_delay, Duration::max());
}

TEST(CapacityProber, AServerThatAnswersNothingEndsTheSearch) {
  TestOpenAiServer server;
  server.metrics = {200, "text/plain", {}, metrics_text(0, 0)};
  server.answer = [](const auto& exchange, int) {
    exchange->respond({500, "application/json", {}, R"({"error":{"message":"broken"}})"});
  };
  CapacityProber prober(options_for(server));
  ASSERT_TRUE(prober.prepare());
  const auto probe = prober.probe(200);
  ASSERT_FALSE(probe);
  EXPECT_THAT(probe.error().message, HasSubstr("every request failed"));
  EXPECT_THAT(probe.error().message, HasSubstr("broken"));
}

}  // namespace
}  // namespace sluice
