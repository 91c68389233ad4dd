#include "workload/synthetic_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(SyntheticWorkload, SaysWhatItIsAndIsTheSameForASeed) {
  SyntheticWorkload synthetic;
  synthetic.arrivals.rate = 2.5;
  synthetic.arrivals.seed = 9;
  synthetic.requests = 100;
  synthetic.max_total = 2048;
  const auto a = make_workload(synthetic);
  const auto b = make_workload(synthetic);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->source, "sharegpt lengths, Poisson 2.5/s");
  ASSERT_EQ(a->requests.size(), 100U);
  for (std::size_t i = 0; i < 100; ++i) {
    const WorkloadRequest& one = a->requests[i];
    EXPECT_EQ(one.arrival, b->requests[i].arrival);
    EXPECT_EQ(one.prompt_tokens, b->requests[i].prompt_tokens);
    EXPECT_EQ(one.output_tokens, b->requests[i].output_tokens);
    EXPECT_LE(one.prompt_tokens + one.output_tokens, 2048);
    EXPECT_TRUE(one.prefix_pieces.empty());
  }
  synthetic.arrivals.burstiness = 0.25;
  EXPECT_EQ(make_workload(synthetic)->source, "sharegpt lengths, gamma 2.5/s, CoV 2");
  synthetic.arrivals.rate = INFINITY;
  EXPECT_EQ(make_workload(synthetic)->source, "sharegpt lengths, all at once");
}

// One seed must not make long prompts come after long gaps.
TEST(SyntheticWorkload, LengthsDoNotDependOnTheGaps) {
  SyntheticWorkload synthetic;
  synthetic.lengths = "uniform:1-1000,1-1000";
  synthetic.arrivals.rate = 1;
  synthetic.requests = 20'000;
  const auto workload = make_workload(synthetic);
  ASSERT_TRUE(workload);
  const std::vector<WorkloadRequest>& requests = workload->requests;
  for (const std::size_t shift : {0, 1}) {
    double sum = 0;
    for (std::size_t i = 1; i + 1 < requests.size(); ++i) {
      const Duration gap = requests[i].arrival - requests[i - 1].arrival;
      sum += (std::chrono::duration<double>(gap).count() - 1) *
             (requests[i - shift].prompt_tokens - 500.5) / 288.7;
    }
    EXPECT_NEAR(sum / 20'000, 0, 0.03) << shift;
  }
}

TEST(SyntheticWorkload, ErrorsOfItsPartsCome) {
  SyntheticWorkload synthetic;
  synthetic.arrivals.rate = -1;
  EXPECT_THAT(make_workload(synthetic).error().message, HasSubstr("request rate"));
  synthetic.arrivals.rate = 1;
  synthetic.lengths = "fixed:1";
  EXPECT_THAT(make_workload(synthetic).error().message, HasSubstr("fixed:P,O"));
}

}  // namespace
}  // namespace sluice
