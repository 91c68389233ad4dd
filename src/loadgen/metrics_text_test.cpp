#include "loadgen/metrics_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(MetricsText, ReadsTheNamesBehindAnyNamespace) {
  const auto metrics = parse_metrics(
      "# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"a} b\"} 3.0\n"
      "vllm:num_requests_running{engine=\"1\"} 2 1700000000\n"
      "sluice:num_requests_waiting 7\n"
      "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
      "x:request_queue_time_seconds_bucket{le=\"0.5\",m=\"a\"} 4\n"
      "x:request_queue_time_seconds_bucket{m=\"a\",le=\"+Inf\"} 6\n"
      "x:request_queue_time_seconds_bucket{m=\"b\",le=\"0.5\"} 1\n"
      "x:request_queue_time_seconds_bucket{m=\"b\",le=\"+Inf\"} 1\n"
      "x:request_queue_time_seconds_sum 9\n");
  EXPECT_EQ(metrics.running, 5);
  EXPECT_EQ(metrics.waiting, 7);
  EXPECT_EQ(metrics.kv_usage, 0.5);
  ASSERT_EQ(metrics.queue_time.size(), 2U);
  EXPECT_EQ(metrics.queue_time[0].upper, 0.5);
  EXPECT_EQ(metrics.queue_time[0].count, 5);
  EXPECT_EQ(metrics.queue_time[1].upper, kInfinite);
  EXPECT_EQ(metrics.queue_time[1].count, 7);
}

TEST(MetricsText, PassesOverWhatItDoesNotUnderstand) {
  const auto metrics = parse_metrics(
      "num_requests_running\nnum_requests_running{ 1\nnum_requests_running x\n\n"
      "num_requests_running NaN\nx:request_queue_time_seconds_bucket{xle=\"1\"} 1\n<html>");
  EXPECT_FALSE(metrics.running || metrics.waiting || metrics.kv_usage);
  EXPECT_TRUE(metrics.queue_time.empty());
}

TEST(MetricsText, TheMedianIsOfWhatWasRecordedBetweenTwoReadings) {
  const std::vector<QueueTimeBucket> before = {{1, 100}, {2, 100}, {kInfinite, 100}};
  const std::vector<QueueTimeBucket> after = {{1, 100}, {2, 110}, {kInfinite, 110}};
  EXPECT_EQ(queue_time_count(before, after), 10);
  // All ten between one and two seconds: the fifth is half way.
  EXPECT_EQ(median_queue_time(before, after, 0), std::chrono::milliseconds(1500));
  // Ten more that never ran are longer than these: the tenth of twenty is the longest of them.
  EXPECT_EQ(median_queue_time(before, after, 10), std::chrono::seconds(2));
  EXPECT_EQ(median_queue_time(before, after, 11), std::nullopt);
  EXPECT_EQ(median_queue_time(before, before, 0), std::nullopt);
  EXPECT_EQ(median_queue_time({}, {}, 0), std::nullopt);
}

TEST(MetricsText, AServerThatWasStartedAnewCountsFromZero) {
  const std::vector<QueueTimeBucket> before = {{1, 50}, {kInfinite, 50}};
  const std::vector<QueueTimeBucket> after = {{1, 4}, {kInfinite, 4}};
  EXPECT_EQ(queue_time_count(before, after), 4);
  EXPECT_EQ(median_queue_time(before, after, 0), std::chrono::milliseconds(500));
}

TEST(MetricsText, BeyondTheLastBoundTheMedianIsThatBound) {
  EXPECT_EQ(median_queue_time({}, {{3, 0}, {kInfinite, 5}}, 0), std::chrono::seconds(3));
}

}  // namespace
}  // namespace sluice
