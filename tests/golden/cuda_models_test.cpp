// Whole models on the CUDA backend against transformers: greedy tokens in float32 are equal, from
// graphs and eagerly, with prompts in chunks and in batches. In 16 bits they are near the CPU's,
// and deterministic with --deterministic. Adapters give PEFT's tokens. The tests run on the host
// under a fake driver, and also on a GPU if there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "tests/golden/expect_greedy.h"
#include "tests/golden/expect_peft.h"
#include "tests/golden/golden_case.h"
#include "tests/parity/support.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

constexpr const char* kDirectory = "tests/golden/models";
// In tests/golden/adapters.
const std::set<std::string> kAdapters = {"dora", "dora-bias", "llama", "mistral", "qwen2", "qwen3"};
const std::set<std::string> kEmulatedAdapters = {"dora-bias"};

// Emulation takes a second or two per model, so only models with many variants run. In 16 bits: one
// with F16 weights, one with BF16, and one with FP8 and BF16.
const std::set<std::string> kEmulatedModels = {"llama-gelu-f16", "mistral-window",
                                               "qwen3-layer-types-biases"};
const std::set<std::string> kEmulatedHalves = {"llama-gelu-f16", "mistral-window",
                                               "qwen3-fp8-tensor"};

struct ModelOnDevice {
  std::string model;
  parity::DeviceCase device;
};
void PrintTo(const ModelOnDevice& place, std::ostream* os) {
  *os << place.model << " on " << place.device.name;
}

template <class Names>
std::vector<ModelOnDevice> on_devices(const Names& models, const std::set<std::string>& emulated) {
  std::vector<ModelOnDevice> places;
  for (const std::string& model : models) {
    for (const parity::DeviceCase& device : parity::available_devices()) {
      if (!device.name.starts_with("cuda")) continue;
      if (device.slow && !emulated.contains(model)) continue;
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

  // Prompts [first, last) in one batch, cut into steps of `token_budget`, in the weights' own
  // dtype.
  test::Results run(std::unique_ptr<Device> device, std::size_t first, std::size_t last,
                    std::int32_t token_budget) {
    EngineOptions options;
    options.token_budget = token_budget;
    options.block_size = 4;
    options.max_num_seqs = 4;
    test::EngineFixture fixture(checkpoint_.path(), options, 1, std::move(device));
    for (std::size_t i = first; i < last; ++i) {
      Request request = test::greedy_request(i, golden_.prompts[i].ids, 3);
      request.sampling.logprobs = 0;
      fixture.add(std::move(request));
    }
    return fixture.run_to_end();
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

class CudaHalvesTest : public CudaModelsTest {};

// On tensor cores: the CPU's results up to rounding. If tokens differ, both were about equally
// likely.
TEST_P(CudaHalvesTest, ResultsAreNearTheCpu) {
  const std::size_t prompts = golden_.prompts.size();
  const test::Results want = run(nullptr, 0, prompts, 23);
  const test::Results got = run(std::move(device_), 0, prompts, 23);
  for (std::size_t i = 0; i < prompts; ++i) {
    const test::ChoiceResult& a = want.at({i, 0});
    const test::ChoiceResult& b = got.at({i, 0});
    ASSERT_EQ(a.tokens.size(), b.tokens.size());
    for (std::size_t t = 0; t < a.tokens.size(); ++t) {
      EXPECT_NEAR(a.logprobs[t].logprob, b.logprobs[t].logprob, 0.1) << i << ", token " << t;
      if (a.tokens[t] != b.tokens[t]) break;
    }
  }
}

TEST_P(CudaHalvesTest, DeterministicResultsDoNotDependOnTheBatch) {
  const auto deterministic = [] { return *GetParam().device.make(1, true); };
  const std::size_t prompts = golden_.prompts.size();
  const test::Results together = run(deterministic(), 0, prompts, 29);
  const test::ChoiceResult& a = together.at({0, 0});
  const test::ChoiceResult b = run(deterministic(), 0, 1, 4).at({0, 0});
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (std::size_t t = 0; t < a.logprobs.size(); ++t) {
    EXPECT_EQ(a.logprobs[t].logprob, b.logprobs[t].logprob) << "token " << t;
  }
}

class CudaAdaptersTest : public testing::TestWithParam<ModelOnDevice> {};

TEST_P(CudaAdaptersTest, TokensAndLogprobsAreThoseOfPeft) {
  auto device = GetParam().device.make(1, false);
  if (!device) GTEST_SKIP() << device.error().message;
  test::expect_results_of_peft(GetParam().model, false, std::move(*device));
}

std::string test_name(const testing::TestParamInfo<ModelOnDevice>& info) {
  std::string name = info.param.model + "_" + info.param.device.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaModelsTest,
                         testing::ValuesIn(on_devices(golden_case_names(kDirectory),
                                                      kEmulatedModels)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Models, CudaHalvesTest,
                         testing::ValuesIn(on_devices(golden_case_names(kDirectory),
                                                      kEmulatedHalves)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Adapters, CudaAdaptersTest,
                         testing::ValuesIn(on_devices(kAdapters, kEmulatedAdapters)), test_name);

}  // namespace
}  // namespace sluice
