#include "loadgen/workload_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

using testing::HasSubstr;

WorkloadSpec fixed_spec() {
  WorkloadSpec spec;
  spec.lengths = "fixed:100,10";
  spec.count = 50;
  spec.rate = 10;
  return spec;
}

TEST(WorkloadSpec, JoinsLengthsAndArrivals) {
  const auto made = make_workload(fixed_spec());
  ASSERT_TRUE(made.has_value()) << made.error().message;
  const auto& requests = made->workload.requests;
  ASSERT_EQ(requests.size(), 50U);
  EXPECT_EQ(requests.front().arrival, Duration(0));
  EXPECT_EQ(requests.back().prompt_tokens, 100);
  EXPECT_EQ(requests.back().output_tokens, 10);
  EXPECT_NEAR(49 / to_seconds(requests.back().arrival), 10, 4);  // gaps per second
  EXPECT_EQ(made->shortened, 0);
  EXPECT_THAT(made->workload.source, HasSubstr("Poisson at 10 requests/s"));
}

TEST(WorkloadSpec, ScalesLengths) {
  WorkloadSpec spec = fixed_spec();
  spec.trace_options.length_scale = 0.5;
  const auto made = make_workload(spec);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(made->workload.requests.front().prompt_tokens, 50);
  EXPECT_EQ(made->workload.requests.front().output_tokens, 5);
  EXPECT_THAT(made->workload.source, HasSubstr("fixed:100,10 x 0.5 lengths"));
}

TEST(WorkloadSpec, CountsWhatIsShortenedToTheContext) {
  WorkloadSpec spec = fixed_spec();
  spec.max_total = 55;
  const auto made = make_workload(spec);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->shortened, 50);
  EXPECT_LE(
      made->workload.requests.front().prompt_tokens + made->workload.requests.front().output_tokens,
      55);
}

TEST(WorkloadSpec, ErrorsNameWhatIsWrong) {
  WorkloadSpec lengths = fixed_spec();
  lengths.lengths = "fixed:0,1";
  EXPECT_FALSE(make_workload(lengths).has_value());
  WorkloadSpec burst = fixed_spec();
  burst.burstiness = -1;
  EXPECT_THAT(make_workload(burst).error().message, HasSubstr("burstiness"));
  WorkloadSpec trace;
  trace.trace = "no/such/trace.csv";
  EXPECT_THAT(make_workload(trace).error().message, HasSubstr("no/such/trace.csv"));
}

TEST(WorkloadSpec, ARampGoesFromOneRateToTheOther) {
  const auto even = [] {
    std::vector<Duration> arrivals;
    for (int i = 0; i <= 100; ++i) arrivals.emplace_back(std::chrono::seconds(i));
    return arrivals;
  };
  const auto gap_s = [](const std::vector<Duration>& arrivals, std::size_t i) {
    return to_seconds(arrivals[i] - arrivals[i - 1]);
  };
  auto linear = even();
  ramp_arrivals(RampUp::kLinear, 1, 3, linear);
  EXPECT_NEAR(gap_s(linear, 50), 1 / 2.0, 1e-6);
  EXPECT_NEAR(gap_s(linear, 100), 1 / 3.0, 1e-6);
  auto exponential = even();
  ramp_arrivals(RampUp::kExponential, 1, 4, exponential);
  EXPECT_NEAR(gap_s(exponential, 50), 1 / 2.0, 1e-6);
  EXPECT_NEAR(gap_s(exponential, 100), 1 / 4.0, 1e-6);
}

TEST(WorkloadSpec, RequestsAreShortenedToTheContext) {
  Workload workload;
  workload.requests = {{Duration(0), 90, 30, {}}, {Duration(0), 50, 10, {}}};
  shorten_to_context(workload, 60);
  EXPECT_EQ(workload.requests[0].prompt_tokens, 45);
  EXPECT_EQ(workload.requests[0].output_tokens, 15);
  EXPECT_EQ(workload.requests[1].prompt_tokens, 50);
  EXPECT_EQ(workload.requests[1].output_tokens, 10);
}

}  // namespace
}  // namespace sluice
