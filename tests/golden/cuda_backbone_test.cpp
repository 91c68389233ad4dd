// Engines on a backbone in a GPU's memory: on a GPU, and with its kernels run on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "backbone/backbone.h"
#include "engine/backbone_loader.h"
#include "tests/golden/computed_logits.h"
#include "tests/golden/golden_case.h"
#include "tests/parity/support.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

struct BackboneOnDevice {
  const char* model;
  parity::DeviceCase device;
  friend void PrintTo(const BackboneOnDevice& value, std::ostream* out) {
    *out << value.model << " on " << value.device.name;
  }
};

// Emulation takes seconds for each larger model.
std::vector<BackboneOnDevice> backbones_on_devices() {
  std::vector<BackboneOnDevice> places;
  for (const parity::DeviceCase& device : parity::available_devices()) {
    if (!device.name.starts_with("cuda")) continue;
    for (const char* model :
         {"llama-gqa-tied-f32", "qwen3-layer-types-biases", "llama-fp8-block", "llama-gelu-f16"}) {
      if (device.slow && std::string_view(model) != "llama-gqa-tied-f32") continue;
      places.push_back({model, device});
    }
  }
  return places;
}

class CudaBackboneTest : public testing::TestWithParam<BackboneOnDevice> {};

TEST_P(CudaBackboneTest, TokensAndLogitsAreThoseOfTheCheckpoint) {
  const auto make = [] { return GetParam().device.make(1, true); };
  auto device = make();
  if (!device) GTEST_SKIP() << device.error().message;
  const TempDirectory model;
  write_golden_checkpoint(read_golden_case("tests/golden/models", GetParam().model), model.path());
  EngineOptions options;
  options.max_num_seqs = 2;
  options.token_budget = 16;
  options.max_model_len = 64;
  options.block_size = 4;
  options.kv_cache_memory = 1 << 20;
  ThreadPool pool(1);
  auto written = make_backbone(model.path(), options, **device, pool);
  if (!written && written.error().code == ErrorCode::kUnsupported) {
    GTEST_SKIP() << written.error().message;
  }
  ASSERT_TRUE(written) << written.error().message;
  const auto backbone = read_only(*written);
  ASSERT_TRUE(backbone) << backbone.error().message;
  written = Backbone();  // the writer goes, and its device
  test::ComputedLogits expected;
  {
    test::EngineFixture alone(model.path(), options, 1, std::move(*device));
    expected = test::compute_logits(alone);
  }
  ASSERT_EQ(expected.tokens.size(), 15U);
  ASSERT_FALSE(expected.logits.empty());
  BackboneUse checked;
  checked.verify = true;
  test::EngineFixture first(*backbone, options, 1, *make(), checked);
  checked.address = BackboneAddress::kAny;
  test::EngineFixture second(*backbone, options, 1, *make(), checked);
  EXPECT_EQ(test::compute_logits(first), expected);
  EXPECT_EQ(test::compute_logits(second), expected);
}

std::string name_of_place(const testing::TestParamInfo<BackboneOnDevice>& info) {
  std::string name = std::string(info.param.model) + "_" + info.param.device.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaBackboneTest, testing::ValuesIn(backbones_on_devices()),
                         name_of_place);

}  // namespace
}  // namespace sluice
