#include "server/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "tests/support/exposition.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

ServerMetrics make_metrics(std::string model = "demo") {
  ServerMetrics::Options options;
  options.model_name = std::move(model);
  options.version = "0.1.0";
  options.max_requests = 1024;
  return ServerMetrics(options);
}

test::Exposition written(const ServerMetrics& metrics) {
  std::string text;
  metrics.write(text);
  return test::parse_exposition(text);
}

TimePoint at(Duration d) { return TimePoint{d}; }

TEST(ServerMetricsTest, KeysAreCountedByName) {
  ServerMetrics metrics = make_metrics();
  metrics.first_token({37, at(1s), at(2s), "alice"});
  RequestTimes times;
  times.reason = FinishReason::kStop;
  times.output_tokens = 4;
  times.adapter = "poet";
  times.key = "alice";
  metrics.choice_finished(times);
  metrics.key_refused("bob");
  for (int i = 0; i < 100; ++i) metrics.key_refused("key" + std::to_string(i));
  const auto m = written(metrics);
  EXPECT_EQ(m.at("sluice:key_prompt_tokens_total").value({{"key", "alice"}}), 37);
  EXPECT_EQ(m.at("sluice:key_requests_total").value({{"key", "alice"}}), 1);
  EXPECT_EQ(m.at("sluice:key_generation_tokens_total").value({{"key", "alice"}}), 4);
  EXPECT_EQ(m.at("sluice:adapter_generation_tokens_total").value({{"adapter", "poet"}}), 4);
  EXPECT_EQ(m.at("sluice:key_refused_total").value({{"key", "bob"}}), 1);
  EXPECT_EQ(m.at("sluice:key_refused_total").value({{"key", "other"}}), 38);
}

TEST(ServerMetricsTest, TurnsAreThereWithFunctionsAndBoundedByKey) {
  ServerMetrics metrics = make_metrics();
  EXPECT_FALSE(written(metrics).contains("sluice:function_turn_seconds_total"));
  FunctionTurns turns{.uses = {{"alice", 1500ms}}, .suspensions = 2, .kills = 1, .warm = 3};
  for (int i = 0; i < 70; ++i) turns.uses.push_back({"key" + std::to_string(i), 1s});
  metrics.function_turns(turns);
  const auto m = written(metrics);
  const auto& seconds = m.at("sluice:function_turn_seconds_total");
  EXPECT_EQ(seconds.value({{"key", "alice"}}), 1.5);
  EXPECT_EQ(seconds.value({{"key", "key62"}}), 1);
  EXPECT_EQ(seconds.value({{"key", "other"}}), 7);
  EXPECT_EQ(m.at("sluice:function_suspensions_total").value({{"model_name", "demo"}}), 2);
  EXPECT_EQ(m.at("sluice:function_kills_total").value({{"model_name", "demo"}}), 1);
  EXPECT_EQ(m.at("sluice:warm_functions").value({{"model_name", "demo"}}), 3);
}

TEST(ServerMetricsTest, ARequestsLifeAppearsInEveryLatency) {
  ServerMetrics metrics = make_metrics();
  metrics.request_admitted({.n = 1, .max_tokens = 100, .dispatch = 150us});
  metrics.first_token({.prompt_tokens = 37, .arrival = at(1s), .time = at(1300ms)});
  metrics.tokens(1, std::nullopt);
  metrics.tokens(1, 20ms);
  metrics.tokens(2, 20ms);  // two at once: 10 ms each
  metrics.tokens_delivered(90us);
  metrics.choice_finished({.reason = FinishReason::kStop,
                           .prompt_tokens = 37,
                           .output_tokens = 4,
                           .arrival = at(1s),
                           .first_scheduled = at(1100ms),
                           .first_token = at(1300ms),
                           .last_token = at(1900ms),
                           .end = at(2s)});
  const auto m = written(metrics);
  const auto sum = [&](const char* name) {
    return m.at(name).value({{"model_name", "demo"}}, "_sum");
  };
  const auto count = [&](const char* name) {
    return m.at(name).value({{"model_name", "demo"}}, "_count");
  };
  EXPECT_NEAR(sum("sluice:time_to_first_token_seconds"), 0.3, 1e-12);
  EXPECT_NEAR(sum("sluice:inter_token_latency_seconds"), 0.04, 1e-12);
  EXPECT_EQ(count("sluice:inter_token_latency_seconds"), 3);
  EXPECT_NEAR(sum("sluice:request_time_per_output_token_seconds"), 0.2, 1e-12);
  EXPECT_NEAR(sum("sluice:e2e_request_latency_seconds"), 1, 1e-12);
  EXPECT_NEAR(sum("sluice:request_queue_time_seconds"), 0.1, 1e-12);
  EXPECT_NEAR(sum("sluice:request_prefill_time_seconds"), 0.2, 1e-12);
  EXPECT_NEAR(sum("sluice:request_decode_time_seconds"), 0.6, 1e-12);
  EXPECT_NEAR(sum("sluice:request_inference_time_seconds"), 0.8, 1e-12);
  EXPECT_NEAR(sum("sluice:request_dispatch_seconds"), 150e-6, 1e-12);
  EXPECT_NEAR(sum("sluice:token_delivery_seconds"), 90e-6, 1e-12);
  EXPECT_EQ(sum("sluice:request_prompt_tokens"), 37);
  EXPECT_EQ(sum("sluice:request_generation_tokens"), 4);
  EXPECT_EQ(sum("sluice:request_params_n"), 1);
  EXPECT_EQ(sum("sluice:request_params_max_tokens"), 100);
  EXPECT_EQ(m.at("sluice:prompt_tokens_total").value(), 37);
  EXPECT_EQ(m.at("sluice:generation_tokens_total").value(), 4);
  EXPECT_EQ(m.at("sluice:request_success_total").value({{"finished_reason", "stop"}}), 1);
  EXPECT_EQ(m.at("sluice:request_success_total").value({{"finished_reason", "abort"}}), 0);
}

TEST(ServerMetricsTest, AChoiceThatNeverRanCountsOnlyWhereItWaited) {
  ServerMetrics metrics = make_metrics();
  RequestTimes never_ran;
  never_ran.reason = FinishReason::kCancelled;
  never_ran.arrival = at(1s);
  never_ran.end = at(3s);
  metrics.choice_finished(never_ran);
  metrics.choice_finished({.reason = FinishReason::kLength,
                           .prompt_tokens = 5,
                           .output_tokens = 1,
                           .arrival = at(1s),
                           .first_scheduled = at(2s),
                           .first_token = at(3s),
                           .last_token = at(3s),
                           .end = at(3s)});
  const auto m = written(metrics);
  EXPECT_EQ(m.at("sluice:request_success_total").value({{"finished_reason", "abort"}}), 1);
  EXPECT_EQ(m.at("sluice:request_success_total").value({{"finished_reason", "length"}}), 1);
  EXPECT_EQ(m.at("sluice:e2e_request_latency_seconds").value({}, "_count"), 2);
  EXPECT_EQ(m.at("sluice:request_queue_time_seconds").value({}, "_count"), 1);
  EXPECT_EQ(m.at("sluice:request_decode_time_seconds").value({}, "_sum"), 0);
  // One token has no time per output token.
  EXPECT_EQ(m.at("sluice:request_time_per_output_token_seconds").value({}, "_count"), 0);
}

TEST(ServerMetricsTest, TheEnginesStateIsWhatItReportedLast) {
  ServerMetrics metrics = make_metrics();
  EXPECT_EQ(written(metrics).at("sluice:kv_cache_usage_perc").value(), 0);  // not loaded yet
  EXPECT_EQ(written(metrics).at("sluice:engine_up").value(), 0);
  EngineGauges gauges;
  gauges.running = 3;
  gauges.waiting = 5;
  gauges.kv_blocks = 200;
  gauges.kv_blocks_used = 50;
  gauges.kv_blocks_cached = 30;
  gauges.prefix_queried_tokens = 1000;
  gauges.prefix_hit_tokens = 400;
  gauges.totals.steps = 70;
  gauges.totals.computed_tokens = 900;
  gauges.totals.preemptions = 2;
  gauges.totals.device = {1500ms, 250ms};
  gauges.totals.computed = {640, 40, 9000, 3000};
  metrics.engine(EngineState::kReady, gauges, 9);
  const StepRecord steps[] = {{at(1s), 2ms, 512}, {at(2s), 4ms, 3}};
  metrics.steps(steps);
  auto m = written(metrics);
  EXPECT_EQ(m.at("sluice:num_requests_running").value(), 3);
  EXPECT_EQ(m.at("sluice:num_requests_waiting").value(), 5);
  EXPECT_EQ(m.at("sluice:kv_cache_usage_perc").value(), 0.25);
  EXPECT_EQ(m.at("sluice:kv_blocks").value({{"state", "used"}}), 50);
  EXPECT_EQ(m.at("sluice:kv_blocks").value({{"state", "cached"}}), 30);
  EXPECT_EQ(m.at("sluice:kv_blocks").value({{"state", "free"}}), 120);
  EXPECT_EQ(m.at("sluice:prefix_cache_queries_total").value(), 1000);
  EXPECT_EQ(m.at("sluice:prefix_cache_hits_total").value(), 400);
  EXPECT_EQ(m.at("sluice:num_preemptions_total").value(), 2);
  EXPECT_EQ(m.at("sluice:engine_steps_total").value(), 70);
  EXPECT_EQ(m.at("sluice:device_busy_seconds_total").value(), 1.5);
  EXPECT_EQ(m.at("sluice:device_idle_seconds_total").value(), 0.25);
  EXPECT_EQ(m.at("sluice:matmul_rows_total").value(), 640);
  EXPECT_EQ(m.at("sluice:matmul_rows_padding_total").value(), 40);
  EXPECT_EQ(m.at("sluice:attention_pairs_total").value(), 9000);
  EXPECT_EQ(m.at("sluice:attention_pairs_padding_total").value(), 3000);
  EXPECT_EQ(m.at("sluice:engine_up").value(), 1);
  EXPECT_EQ(m.at("sluice:unfinished_requests").value(), 9);
  EXPECT_EQ(m.at("sluice:max_unfinished_requests").value(), 1024);
  EXPECT_EQ(m.at("sluice:iteration_tokens_total").value({{"le", "512"}}, "_bucket"), 2);
  EXPECT_EQ(m.at("sluice:iteration_tokens_total").value({{"le", "256"}}, "_bucket"), 1);
  EXPECT_NEAR(m.at("sluice:step_duration_seconds").value({}, "_sum"), 0.006, 1e-12);
  metrics.engine(EngineState::kFailed, gauges, 0);
  EXPECT_EQ(written(metrics).at("sluice:engine_up").value(), 0);
}

TEST(ServerMetricsTest, AnswersAndRefusalsAreCountedByLabel) {
  ServerMetrics metrics = make_metrics();
  metrics.http_request("/v1/completions", 200);
  metrics.http_request("/v1/completions", 200);
  metrics.http_request("/v1/completions", 429);
  metrics.http_request("/metrics", 200);
  metrics.request_refused("queue_full");
  metrics.request_refused("draining");
  metrics.request_refused("queue_full");
  metrics.open_connections(12);
  const auto m = written(metrics);
  const auto& http = m.at("sluice:http_requests_total");
  EXPECT_EQ(http.value({{"path", "/v1/completions"}, {"status", "200"}}), 2);
  EXPECT_EQ(http.value({{"path", "/v1/completions"}, {"status", "429"}}), 1);
  EXPECT_EQ(http.value({{"path", "/metrics"}, {"status", "200"}}), 1);
  EXPECT_EQ(m.at("sluice:requests_refused_total").value({{"reason", "queue_full"}}), 2);
  EXPECT_EQ(m.at("sluice:requests_refused_total").value({{"reason", "draining"}}), 1);
  EXPECT_EQ(m.at("sluice:http_open_connections").value(), 12);
}

TEST(ServerMetricsTest, InfoNamesVersionCacheAndWhereTheStartWent) {
  ServerMetrics metrics = make_metrics("a \"model\"\n");
  EXPECT_FALSE(written(metrics).contains("sluice:cache_config_info"));
  metrics.cache_config(
      {.block_size = 16, .num_blocks = 4096, .cache_dtype = "bf16", .prefix_caching = true});
  const StartupSpan spans[] = {{"config", 2ms}, {"map weights", 30ms, 0, 2ms}};
  metrics.startup(spans, 32ms);
  const auto m = written(metrics);
  EXPECT_EQ(m.at("sluice:cache_config_info")
                .value({{"model_name", "a \"model\"\n"},
                        {"block_size", "16"},
                        {"num_gpu_blocks", "4096"},
                        {"cache_dtype", "bf16"},
                        {"enable_prefix_caching", "True"}}),
            1);
  EXPECT_EQ(m.at("sluice:startup_seconds").value({{"span", "map weights"}}), 0.03);
  EXPECT_EQ(m.at("sluice:startup_seconds").value({{"span", "total"}}), 0.032);
  EXPECT_EQ(m.at("sluice:startup_begin_seconds").value({{"span", "map weights"}}), 0.002);
  EXPECT_EQ(m.at("sluice:build_info").value({{"version", "0.1.0"}}), 1);
}

TEST(ServerMetricsTest, ThePrefixIsAnOption) {
  ServerMetrics::Options options;
  options.prefix = "vllm:";
  options.model_name = "demo";
  const auto m = written(ServerMetrics(options));
  for (const auto& [name, family] : m) EXPECT_THAT(name, testing::StartsWith("vllm:"));
}

// docs/metrics.md has each metric once, with its type.
TEST(ServerMetricsTest, EveryMetricIsDocumented) {
  ServerMetrics metrics = make_metrics();
  metrics.cache_config({});
  metrics.function_turns({.uses = {{"a", Duration(1)}}});
  metrics.lending({});
  EngineGauges gauges;
  gauges.tier_levels.are_two = true;
  metrics.engine(EngineState::kReady, gauges, 0);
  std::ifstream file("docs/metrics.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto m = written(metrics);
  EXPECT_GT(m.size(), 30U);
  for (const auto& [name, family] : m) {
    const std::string row = "| `" + name.substr(name.find(':') + 1) + "` | " + family.type + " |";
    const std::size_t first = text.find(row);
    EXPECT_NE(first, std::string::npos) << row;
    EXPECT_EQ(text.find(row, first + 1), std::string::npos) << row;
  }
  // The gateway's rows are compared with what it serves in tests/client/gateway_test.py.
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = text.find("\n| `", at)) != std::string::npos; ++at) {
    if (text.compare(at + 4, 8, "gateway_") != 0) ++rows;
  }
  EXPECT_EQ(rows, m.size());
}

}  // namespace
}  // namespace sluice
