#include "function_sim/function_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

TEST(FunctionCallsTest, GapsHaveTheirRateAndCov) {
  for (const double cov : {0.7, 2.0, 6.0}) {
    CallOptions options;
    options.cov = cov;
    options.rate = 0.5;
    options.seconds = 100'000;
    const auto calls = make_calls(options);
    ASSERT_TRUE(calls);
    const auto count = static_cast<double>(calls->size());
    EXPECT_NEAR(count / 100'000, 0.5, 0.05 * cov);
    double square = 0;
    for (std::size_t i = 1; i < calls->size(); ++i) {
      const double gap = to_seconds((*calls)[i].arrival - (*calls)[i - 1].arrival);
      square += gap * gap;
    }
    const double mean = to_seconds(calls->back().arrival - calls->front().arrival) / (count - 1);
    EXPECT_NEAR(std::sqrt(square / (count - 1) / (mean * mean) - 1), cov, 0.15 * cov);
  }
}

TEST(FunctionCallsTest, SeedsRepeatAndFunctionsDiffer) {
  CallOptions options;
  options.functions = 3;
  options.rate = 0.1;
  const auto one = make_calls(options);
  const auto two = make_calls(options);
  ASSERT_TRUE(one && two);
  ASSERT_EQ(one->size(), two->size());
  for (std::size_t i = 0; i < one->size(); ++i) {
    EXPECT_EQ((*one)[i].arrival, (*two)[i].arrival);
    EXPECT_EQ((*one)[i].function, (*two)[i].function);
  }
  EXPECT_TRUE(std::ranges::is_sorted(*one, {}, &FunctionCall::arrival));
  for (std::int32_t f = 0; f < 3; ++f) {
    EXPECT_NEAR(static_cast<double>(std::ranges::count(*one, f, &FunctionCall::function)), 360, 90);
  }
  options.rate = 0;
  EXPECT_FALSE(make_calls(options));
  EXPECT_FALSE(cov_of_class("calm"));
}

TEST(FunctionCallsTest, ATraceIsDealtOut) {
  Workload trace;
  for (int i = 0; i < 1000; ++i) {
    WorkloadRequest request;
    request.arrival = std::chrono::seconds(i);
    request.prompt_tokens = i + 1;
    request.output_tokens = 2;
    trace.requests.push_back(request);
  }
  const auto calls = deal_calls(trace, 4, 1);
  ASSERT_EQ(calls.size(), 1000U);
  EXPECT_EQ(calls[41].prompt_tokens, 42);
  for (std::int32_t f = 0; f < 4; ++f) {
    EXPECT_GT(std::ranges::count(calls, f, &FunctionCall::function), 200);
  }
}

}  // namespace
}  // namespace sluice
