// Whole models on the CUDA backend against transformers: greedy tokens in float32 are equal, from
// graphs and eagerly, with prompts in chunks and in batches. On a GPU where there is one; in any
// case with the backend's kernels run on the host, under a fake driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/golden/expect_greedy.h"
#include "tests/golden/golden_case.h"
#include "tests/parity/support.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

constexpr const char* kDirectory = "tests/golden/models";

// Emulated, a model takes a second or two: those with the most variants stand for all.
const std::set<std::string> kEmulatedModels = {"llama-gelu-f16", "mistral-window",
                                               "qwen3-layer-types-biases"};

struct ModelOnDevice {
  std::string model;
  parity::DeviceCase device;
};
void PrintTo(const ModelOnDevice& place, std::ostream* os) {
  *os << place.model << " on " << place.device.name;
}

std::vector<ModelOnDevice> models_on_devices() {
  std::vector<ModelOnDevice> places;
  for (const std::string& model : golden_case_names(kDirectory)) {
    for (const parity::DeviceCase& device : parity::available_devices()) {
      if (!device.name.starts_with("cuda")) continue;
      if (device.slow && !kEmulatedModels.contains(model)) continue;
      places.push_back({model, device});
    }
  }
  return places;
}

class CudaModelsTest : public testing::TestWithParam<ModelOnDevice> {
 protected:
  void SetUp() override {
    auto device = GetParam().device.make(1, false);
    if (!device) GTEST_SKIP() << device.error().message;
    device_ = std::move(*device);
    golden_ = read_golden_case(kDirectory, GetParam().model);
    write_golden_checkpoint(golden_, checkpoint_.path());
  }

  TempDirectory checkpoint_;
  GoldenCase golden_;
  std::unique_ptr<Device> device_;
};

TEST_P(CudaModelsTest, GreedyTokensAreEqual) {
  EngineOptions options;
  options.dtype = DType::kF32;
  options.token_budget = 23;  // prompts in chunks
  options.block_size = 4;
  options.max_num_seqs = 4;
  test::EngineFixture fixture(checkpoint_.path(), options, 1, std::move(device_));
  test::expect_greedy_tokens(fixture, golden_);
}

std::string test_name(const testing::TestParamInfo<ModelOnDevice>& info) {
  std::string name = info.param.model + "_" + info.param.device.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaModelsTest, testing::ValuesIn(models_on_devices()), test_name);

}  // namespace
}  // namespace sluice
