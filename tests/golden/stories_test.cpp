// Greedy continuations of a real trained model (stories260K) against a float64 reference. The
// files are not part of this repository: SLUICE_SHARED_DATA names the folder that holds them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

using test::EngineFixture;
using test::Results;

std::optional<std::string> stories_directory() {
  const char* data = std::getenv("SLUICE_SHARED_DATA");
  if (data == nullptr || *data == '\0') return std::nullopt;
  return std::string(data) + "/weights/stories260K-hf";
}

struct GoldenCase {
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
};

std::vector<GoldenCase> load_cases(const std::string& directory) {
  const auto text = read_file(directory + "/golden_greedy.json", std::uint64_t{1} << 20);
  if (!text) {
    ADD_FAILURE() << text.error().message;
    return {};
  }
  std::vector<GoldenCase> cases;
  const nlohmann::json golden = parse_json(*text);
  for (const auto& entry : golden.at("cases")) {
    cases.push_back({entry.at("prompt_ids").get<std::vector<TokenId>>(),
                     entry.at("output_ids").get<std::vector<TokenId>>()});
  }
  return cases;
}

class StoriesTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto directory = stories_directory();
    if (!directory) GTEST_SKIP() << "SLUICE_SHARED_DATA is not set: no stories260K to test with";
    directory_ = *directory;
    cases_ = load_cases(directory_);
    ASSERT_FALSE(cases_.empty());
  }

  // All cases at once in one engine.
  void expect_equal(const EngineOptions& options, int threads) {
    EngineFixture fixture(directory_, options, threads);
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      fixture.add(test::greedy_request(i, cases_[i].prompt,
                                       static_cast<std::int32_t>(cases_[i].output.size())));
    }
    const Results results = fixture.run_to_end();
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      EXPECT_EQ(results.at({i, 0}).tokens, cases_[i].output) << "case " << i;
    }
  }

  std::string directory_;
  std::vector<GoldenCase> cases_;
};

TEST_F(StoriesTest, GreedyTokensEqualTheReference) { expect_equal({}, 1); }

TEST_F(StoriesTest, AlsoWithTwoThreadsAndNoGraphs) {
  EngineOptions options;
  options.graphs = GraphMode::kEager;
  expect_equal(options, 2);
}

TEST_F(StoriesTest, AlsoWithSmallChunksAndTwoStepsInFlight) {
  EngineOptions options;
  options.token_budget = 3;
  options.steps_in_flight = 2;
  options.block_size = 4;
  expect_equal(options, 1);
}

}  // namespace
}  // namespace sluice
