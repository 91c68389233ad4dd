#include "apps/offline_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/support/fake_engine.h"

namespace sluice {
namespace {

TEST(OfflineReport, HasTheKeysOfVllm) {
  OfflineOptions options;
  options.batch_size = 2;
  const FakeModel model;
  const SystemClock clock;
  const auto engine = make_fake_engine(model, clock, {.num_blocks = 256});
  Workload workload;
  workload.requests.assign(6, WorkloadRequest{Duration(0), 10, 4, {}});
  const auto result =
      run_offline(*engine, options, workload, PromptMaker(middle_ids(model.vocab_size), 7), clock);
  ASSERT_TRUE(result) << result.error().message;
  OfflineReport report;
  report.percentiles = {90};
  report.batches = true;
  report.facts = {{"model_id", "\"m\""}};
  const auto json = parse_json(offline_json(*result, report));
  EXPECT_EQ(json["model_id"], "m");
  EXPECT_EQ(json["num_requests"], 6);
  EXPECT_EQ(json["total_num_tokens"], 6 * 14);
  EXPECT_DOUBLE_EQ(json["requests_per_second"].get<double>() * json["elapsed_time"].get<double>(),
                   6);
  EXPECT_DOUBLE_EQ(json["tokens_per_second"].get<double>() * json["elapsed_time"].get<double>(),
                   6 * 14);
  ASSERT_EQ(json["latencies"].size(), 3U);
  double sum = 0;
  for (const double latency : json["latencies"]) sum += latency;
  EXPECT_NEAR(json["avg_latency"].get<double>(), sum / 3, 1e-12);
  const auto& percentiles = json["percentiles"];
  EXPECT_LE(percentiles["10"], percentiles["50"]);
  EXPECT_LE(percentiles["50"], percentiles["99"]);
  EXPECT_EQ(json["decode"]["decode_tokens"].get<int>() + json["hybrid"]["decode_tokens"].get<int>(),
            6 * 3);
  EXPECT_TRUE(json.contains("p90_tpot_ms"));
  const auto& decode = json["decode"];
  EXPECT_EQ(decode["matmul_rows"], 16 * decode["steps"].get<int>());
  EXPECT_EQ(decode["matmul_rows_padding"],
            16 * decode["steps"].get<int>() - decode["decode_tokens"].get<int>());
  EXPECT_EQ(decode["attention_pairs_padding"], 75 * decode["steps"].get<int>());
  const std::string text = offline_text(*result, report);
  EXPECT_THAT(text, testing::HasSubstr("99% percentile latency"));
  EXPECT_THAT(text, testing::HasSubstr("row pad %"));
  EXPECT_THAT(text, testing::HasSubstr(" 75.0\n"));
  report.batches = false;
  EXPECT_FALSE(parse_json(offline_json(*result, report)).contains("latencies"));
}

}  // namespace
}  // namespace sluice
