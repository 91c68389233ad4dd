// Checks of the golden models themselves: the recipe gives the weights that transformers saw, and
// our configuration and weight tables accept every case unchanged.
#include "tests/golden/golden_case.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "model/families.h"
#include "model/model_config.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

constexpr const char* kModels = "tests/golden/models";

class GoldenCheckpoint : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenCheckpoint, IsAcceptedUnchanged) {
  const GoldenCase golden = read_golden_case(kModels, GetParam());
  const TempDirectory directory;
  ASSERT_NO_THROW(write_golden_checkpoint(golden, directory.path()));
  auto config = load_model_config(directory.path());
  ASSERT_TRUE(config) << config.error().message;
  auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  auto plan = resolve_weights(*config, *checkpoint, 0, config->num_layers);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(dtype_name(plan->dtype), golden.dtype);

  // Every tensor of the model is used for something.
  std::size_t used = plan->tied ? 2 : 3;
  for (const LayerWeightSources& layer : plan->layers) {
    for (const WeightSource& weight : layer.weights) used += weight.present() ? 1 : 0;
  }
  EXPECT_EQ(used, golden.tensors.size());
}

TEST_P(GoldenCheckpoint, HasThePropertiesOfItsReadme) {
  const GoldenCase golden = read_golden_case(kModels, GetParam());
  auto config = parse_model_config(golden.config);
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(golden.prompts.size(), 2U);
  for (const GoldenPrompt& prompt : golden.prompts) {
    EXPECT_EQ(prompt.positions.size(), prompt.logits.size());
    for (const auto& row : prompt.logits) {
      EXPECT_EQ(row.size(), static_cast<std::size_t>(config->vocab_size));
    }
    EXPECT_GE(prompt.greedy.size(), 24U);
    EXPECT_GT(prompt.smallest_margin, 1e-2);
    EXPECT_EQ(prompt.positions.back(), static_cast<std::int32_t>(prompt.ids.size()) - 1);
  }
  EXPECT_TRUE(golden.torch_error.contains("f32"));
  EXPECT_TRUE(golden.torch_error.contains(golden.dtype));
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenCheckpoint, ::testing::ValuesIn(golden_case_names(kModels)),
                         test_name);

}  // namespace
}  // namespace sluice
