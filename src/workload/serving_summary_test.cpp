#include "workload/serving_summary.h"
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Arrived at 1 s, first token after 200 ms, then a token every 50 ms.
RequestRecord answered(int tokens) {
  RequestRecord record;
  record.arrival = seconds(1);
  record.sent = milliseconds(1010);
  record.first_token = milliseconds(1200);
  record.last_token = milliseconds(1200 + 50 * (tokens - 1));
  record.ended = *record.last_token + milliseconds(3);
  record.prompt_tokens = 100;
  record.output_tokens = tokens;
  record.finished = true;
  return record;
}

TEST(ServingRecorder, FiguresOfACompletedRequest) {
  ServingRecorder recorder;
  recorder.add_first_token(milliseconds(1200));
  for (int i = 1; i < 5; ++i) recorder.add_token(milliseconds(1200 + 50 * i), milliseconds(50));
  recorder.add_request(answered(5));
  const ServingSummary summary = recorder.finish(seconds(2));
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed + summary.unfinished, 0);
  // From the intended arrival, not from when it was sent.
  EXPECT_EQ(summary.ttft.greatest(), milliseconds(200));
  EXPECT_EQ(summary.tpot.greatest(), milliseconds(50));
  EXPECT_EQ(summary.tbt.count(), 4);
  EXPECT_EQ(summary.tbt.greatest(), milliseconds(50));
  // To the last token, not to the end of the connection.
  EXPECT_EQ(summary.e2el.greatest(), milliseconds(400));
  EXPECT_EQ(summary.total_input_tokens, 100);
  EXPECT_EQ(summary.total_output_tokens, 5);
  EXPECT_EQ(summary.max_output_tokens_per_s, 5);
  EXPECT_DOUBLE_EQ(summary.request_throughput(), 0.5);
  EXPECT_DOUBLE_EQ(summary.output_throughput(), 2.5);
  EXPECT_DOUBLE_EQ(summary.total_token_throughput(), 52.5);
}

TEST(ServingRecorder, OneTokenHasNoTpot) {
  ServingRecorder recorder;
  recorder.add_request(answered(1));
  const ServingSummary summary = recorder.finish(seconds(2));
  EXPECT_EQ(summary.tpot.count(), 0);
  EXPECT_EQ(summary.ttft.count(), 1);
}

// Coordinated omission: a server that answers no request must not look good.
TEST(ServingRecorder, AnUnansweredRequestCountsWithTheTimeWaited) {
  ServingRecorder recorder;
  RequestRecord record;
  record.arrival = seconds(1);
  record.sent = seconds(1);
  record.ended = seconds(31);
  record.prompt_tokens = 100;
  recorder.add_request(record);
  const ServingSummary summary = recorder.finish(seconds(31));
  EXPECT_EQ(summary.unfinished, 1);
  EXPECT_EQ(summary.ttft.greatest(), seconds(30));
  EXPECT_EQ(summary.e2el.greatest(), seconds(30));
  EXPECT_EQ(summary.total_input_tokens, 0);
}

TEST(ServingRecorder, AnOpenGapCounts) {
  ServingRecorder recorder;
  RequestRecord record = answered(3);
  record.finished = false;
  record.ended = *record.last_token + seconds(10);
  recorder.add_first_token(*record.first_token);
  recorder.add_token(*record.first_token + milliseconds(50), milliseconds(50));
  recorder.add_token(*record.first_token + milliseconds(100), milliseconds(50));
  recorder.add_request(record);
  const ServingSummary summary = recorder.finish(seconds(12));
  EXPECT_EQ(summary.unfinished, 1);
  EXPECT_EQ(summary.tbt.count(), 3);
  EXPECT_EQ(summary.tbt.greatest(), seconds(10));
  EXPECT_EQ(summary.ttft.greatest(), milliseconds(200));
  // Three gaps, the last one still open.
  EXPECT_EQ(summary.tpot.greatest(), Duration(milliseconds(10100)) / 3);
  EXPECT_EQ(summary.total_output_tokens, 3);
  EXPECT_EQ(summary.total_input_tokens, 100);
}

TEST(ServingRecorder, AFailedRequestIsCountedAndHasNoFigures) {
  ServingRecorder recorder;
  RequestRecord record = answered(3);
  record.error = "connection closed";
  recorder.add_request(record);
  const ServingSummary summary = recorder.finish(seconds(2));
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.completed + summary.unfinished, 0);
  EXPECT_EQ(summary.ttft.count() + summary.e2el.count() + summary.tpot.count(), 0);
  EXPECT_EQ(summary.total_output_tokens, 0);
}

TEST(ServingRecorder, GoodputNeedsAllThatAreGiven) {
  Goodput goodput;
  goodput.ttft = milliseconds(200);
  goodput.tpot = milliseconds(50);
  ServingRecorder recorder(goodput);
  recorder.add_request(answered(5));  // both just met
  RequestRecord late = answered(5);
  late.arrival -= milliseconds(1);
  recorder.add_request(late);  // TTFT missed
  RequestRecord slow = answered(5);
  slow.last_token = *slow.last_token + milliseconds(1);
  recorder.add_request(slow);         // TPOT missed
  recorder.add_request(answered(1));  // no TPOT: counts as 0
  RequestRecord open = answered(5);
  open.finished = false;
  recorder.add_request(open);
  const ServingSummary summary = recorder.finish(seconds(4));
  EXPECT_EQ(summary.good, 2);
  EXPECT_TRUE(summary.has_goodput);
  EXPECT_DOUBLE_EQ(summary.request_goodput(), 0.5);
}

TEST(ServingRecorder, GoodputOfEndToEndLatency) {
  Goodput goodput;
  goodput.e2el = milliseconds(400);
  ServingRecorder recorder(goodput);
  recorder.add_request(answered(5));
  recorder.add_request(answered(6));
  EXPECT_EQ(recorder.finish(seconds(1)).good, 1);
}

TEST(ServingRecorder, TheBestSecond) {
  ServingRecorder recorder;
  recorder.add_first_token(milliseconds(999));
  recorder.add_first_token(milliseconds(1000));
  recorder.add_token(milliseconds(1999), milliseconds(1));
  recorder.add_token(seconds(100'000'000), milliseconds(1));  // years on: costs nothing
  // Late news of a second that was counted already, and of one that was not.
  recorder.add_token(milliseconds(1500), milliseconds(1));
  recorder.add_token(milliseconds(5500), milliseconds(1));
  recorder.add_token(milliseconds(1600), milliseconds(1));
  EXPECT_EQ(recorder.finish(seconds(6)).max_output_tokens_per_s, 4);
}

TEST(ServingRecorder, MostConcurrentRequests) {
  ServingRecorder recorder;
  const auto add = [&](int sent, int ended) {
    RequestRecord record;
    record.sent = seconds(sent);
    record.ended = seconds(ended);
    record.finished = true;
    recorder.add_request(record);
  };
  add(0, 10);
  add(1, 3);
  add(3, 5);  // takes the place of the one before
  add(20, 30);
  EXPECT_EQ(recorder.finish(seconds(30)).max_concurrent_requests, 2);
}

TEST(ServingRecorder, OneThatEndsAtOnceWasThere) {
  ServingRecorder recorder;
  for (int i = 0; i < 3; ++i) recorder.add_request({});
  EXPECT_EQ(recorder.finish(seconds(1)).max_concurrent_requests, 3);
}

TEST(ServingRecorder, RealisedRateIsThatOfTheArrivals) {
  ServingRecorder recorder;
  for (const int at : {3, 1, 2}) {
    RequestRecord record;
    record.arrival = seconds(at);
    recorder.add_request(record);
  }
  EXPECT_DOUBLE_EQ(recorder.finish(seconds(100)).realised_rate, 1.0);
}

TEST(ServingRecorder, NothingAtAll) {
  ServingRecorder recorder;
  const ServingSummary summary = recorder.finish(Duration(0));
  EXPECT_EQ(summary.max_concurrent_requests, 0);
  EXPECT_EQ(summary.realised_rate, 0);
  EXPECT_EQ(summary.request_throughput(), 0);
  const auto json = parse_json(summary_json(summary, {}, {}));
  EXPECT_EQ(json["mean_ttft_ms"], 0);
}

ServingSummary small_run() {
  Goodput goodput;
  goodput.ttft = seconds(1);
  ServingRecorder recorder(goodput);
  recorder.add_first_token(milliseconds(1200));
  recorder.add_token(milliseconds(1250), milliseconds(50));
  RequestRecord record = answered(2);
  record.scheduling_delay = milliseconds(7);
  recorder.add_request(record);
  return recorder.finish(seconds(2));
}

std::vector<std::string> keys_of(const std::string& text) {
  std::vector<std::string> keys;
  const auto json = parse_ordered_json(text);
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(SummaryJson, KeysOfVllmAndThenOurs) {
  const std::string text = summary_json(small_run(), {99.9}, {{"request_rate", R"("inf")"}});
  EXPECT_THAT(
      keys_of(text),
      ElementsAre("request_rate", "duration", "completed", "failed", "total_input_tokens",
                  "total_output_tokens", "request_throughput", "request_goodput",
                  "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
                  "max_concurrent_requests", "mean_ttft_ms", "median_ttft_ms", "std_ttft_ms",
                  "p99_ttft_ms", "p99.9_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "std_tpot_ms",
                  "p99_tpot_ms", "p99.9_tpot_ms", "mean_itl_ms", "median_itl_ms", "std_itl_ms",
                  "p99_itl_ms", "p99.9_itl_ms", "mean_e2el_ms", "median_e2el_ms", "std_e2el_ms",
                  "p99_e2el_ms", "p99.9_e2el_ms", "unfinished", "realised_request_rate",
                  "mean_scheduling_delay_ms", "median_scheduling_delay_ms",
                  "std_scheduling_delay_ms", "p99_scheduling_delay_ms",
                  "p99.9_scheduling_delay_ms"));
  const auto json = parse_json(text);
  EXPECT_EQ(json["duration"], 2.0);
  EXPECT_EQ(json["request_goodput"], 0.5);
  EXPECT_EQ(json["p99_itl_ms"], 50.0);
  EXPECT_EQ(json["mean_scheduling_delay_ms"], 7.0);
}

TEST(SummaryJson, WithoutGoodputAndDelaysThereIsNoFigureOfThem) {
  ServingRecorder recorder;
  recorder.add_request(answered(2));
  const ServingSummary summary = recorder.finish(seconds(1));
  EXPECT_EQ(summary.good, 0);
  const auto json = parse_json(summary_json(summary, {50, 99}, {}));
  EXPECT_TRUE(json["request_goodput"].is_null());
  EXPECT_FALSE(json.contains("mean_scheduling_delay_ms"));
  EXPECT_TRUE(json.contains("p50_ttft_ms"));
}

TEST(SummaryJson, ExtraKeysAreEscapedAndTheirValuesKept) {
  const auto json = parse_json(
      summary_json(small_run(), {}, {{"a \"b\"\n", "[1,2]"}, {"label", R"({"x":null})"}}));
  EXPECT_EQ(json["a \"b\"\n"], parse_json("[1,2]"));
  EXPECT_TRUE(json["label"]["x"].is_null());
}

TEST(SummaryTable, LinesOfVllm) {
  const std::string table = summary_table(small_run(), {99});
  EXPECT_THAT(table, HasSubstr("============ Serving Benchmark Result ============\n"));
  EXPECT_THAT(table, HasSubstr("Successful requests:                     1         \n"));
  EXPECT_THAT(table, HasSubstr("Benchmark duration (s):                  2.00      \n"));
  EXPECT_THAT(table, HasSubstr("Request goodput (req/s):                 0.50      \n"));
  EXPECT_THAT(table, HasSubstr("---------------Time to First Token----------------\n"
                               "Mean TTFT (ms):                          200.00    \n"
                               "Median TTFT (ms):                        200.00    \n"
                               "P99 TTFT (ms):                           200.00    \n"));
  EXPECT_THAT(table, HasSubstr("-----Time per Output Token (excl. 1st token)------\n"));
  EXPECT_THAT(table, HasSubstr("P99 ITL (ms):"));  // tidy: allow(word) vLLM's line
  EXPECT_TRUE(table.ends_with("\n==================================================\n"));
}

TEST(SummaryTable, OnlyTheMetricsAskedFor) {
  const std::string table = summary_table(small_run(), {99}, {"ttft"});
  EXPECT_THAT(table, HasSubstr("P99 TTFT (ms):"));
  EXPECT_THAT(table, Not(HasSubstr("TPOT")));
  EXPECT_THAT(table, HasSubstr("Scheduling Delay"));
}

}  // namespace
}  // namespace sluice
