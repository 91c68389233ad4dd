// LoRA adapters against PEFT: an adapter of each family, whose config is as save_pretrained writes
// it, gives PEFT's greedy tokens in float32, and log-probabilities close to those in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/golden/expect_peft.h"

namespace sluice {
namespace {

class AdapterGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(AdapterGoldenTest, TokensAndLogprobsAreThoseOfPeft) {
  test::expect_results_of_peft(GetParam(), false);
}

TEST_P(AdapterGoldenTest, TheyAreTheSameInSharedMemory) {
  test::expect_results_of_peft(GetParam(), true);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterGoldenTest,
                         testing::Values("llama", "mistral", "qwen2", "qwen3", "dora", "dora-bias"),
                         [](const auto& made) {
                           std::string name = made.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice
