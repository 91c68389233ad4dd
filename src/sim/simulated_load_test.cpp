#include "sim/simulated_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(SimulatedLoad, LengthsArriveAtAnyRate) {
  SimulatedLoadOptions options;
  options.lengths = "fixed:100,20";
  options.num_requests = 400;
  options.context = 8192;
  options.seed = 5;
  const SimulatedLoad load = SimulatedLoad::make(options).value();
  ASSERT_FALSE(load.has_times());
  for (const double rate : {0.5, 8.0}) {
    const Workload workload = load.at_rate(rate).value();
    ASSERT_EQ(workload.requests.size(), 400U);
    EXPECT_EQ(workload.requests[7].prompt_tokens, 100);
    EXPECT_EQ(workload.requests[7].output_tokens, 20);
    EXPECT_NEAR(400 / to_seconds(workload.requests.back().arrival), rate, 0.15 * rate);
    EXPECT_THAT(workload.source, HasSubstr("fixed:100,20 lengths"));
  }
  options.length_scale = 0.5;
  const Workload half = SimulatedLoad::make(options).value().at_rate(1).value();
  EXPECT_EQ(half.requests[7].prompt_tokens, 50);
  EXPECT_THAT(half.source, HasSubstr("fixed:100,20 x 0.5 lengths"));
  options.num_requests.reset();
  EXPECT_EQ(SimulatedLoad::make(options).value().at_rate(1).value().requests.size(), 2048U);
}

TEST(SimulatedLoad, ATraceHasItsOwnTimes) {
  const std::string path =
      testing::TempDir() + "/simulated_load_" + std::to_string(getpid()) + ".jsonl";
  std::ofstream(path) << R"({"timestamp": 0, "input_length": 1200, "output_length": 52})"
                      << "\n"
                      << R"({"timestamp": 4000, "input_length": 600, "output_length": 26})"
                      << "\n";
  SimulatedLoadOptions options;
  options.trace = path;
  options.context = 8192;
  options.rate_scale = 2;
  options.length_scale = 0.5;
  const SimulatedLoad load = SimulatedLoad::make(options).value();
  ASSERT_TRUE(load.has_times());
  ASSERT_EQ(load.trace().requests.size(), 2U);
  EXPECT_EQ(load.trace().requests[0].prompt_tokens, 600);
  EXPECT_EQ(load.trace().requests[1].arrival - load.trace().requests[0].arrival,
            std::chrono::seconds(2));
  options.context = 100;
  const auto refused = SimulatedLoad::make(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("--trace: "));
  options.too_long = TooLong::kSkip;
  options.num_requests = 1;
  EXPECT_FALSE(SimulatedLoad::make(options));  // no request is left
  std::filesystem::remove(path);
}

TEST(SimulatedLoad, ErrorsNameTheOption) {
  SimulatedLoadOptions options;
  options.lengths = "fixed:1";
  options.context = 8192;
  const auto bad = SimulatedLoad::make(options);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("--lengths: "));
  options.lengths = "sharegpt";
  options.burstiness = -1;
  const auto load = SimulatedLoad::make(options);
  ASSERT_TRUE(load);
  const auto refused = load->at_rate(1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("--burstiness"));
}

TEST(SimulatedLoad, StepsHaveTimesAndPromptsMayShareAPrefix) {
  SimulatedLoadOptions options;
  options.lengths = "fixed:100,20";
  options.rate_steps = "2x50,20x10";
  options.prefix_tokens = 1024;
  options.prefixes = 3;
  options.context = 8192;
  const SimulatedLoad load = SimulatedLoad::make(options).value();
  ASSERT_TRUE(load.has_times());
  const Workload& workload = load.trace();
  EXPECT_NEAR(static_cast<double>(workload.requests.size()), 300, 60);
  std::set<std::vector<std::uint64_t>> prefixes;
  for (const WorkloadRequest& request : workload.requests) {
    EXPECT_EQ(request.prompt_tokens, 1124);
    EXPECT_EQ(request.prefix_pieces.size(), 2U);
    prefixes.insert(request.prefix_pieces);
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_THAT(workload.source, HasSubstr("2x50,20x10"));
  EXPECT_THAT(workload.source, HasSubstr("3 prefixes of 1024 tokens"));
  options.prefix_tokens = 1000;
  EXPECT_THAT(SimulatedLoad::make(options).error().message, HasSubstr("multiple of 512"));
  options.prefix_tokens = 8192;
  EXPECT_THAT(SimulatedLoad::make(options).error().message, HasSubstr("below the context"));
}

}  // namespace
}  // namespace sluice
