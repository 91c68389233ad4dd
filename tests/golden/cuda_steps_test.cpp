// Steps in flight on the CUDA backend. Submitted work runs as late as allowed, rows are sampled on
// the device and on the host, and every request gets the same tokens as from a synchronous device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "device/cuda/device_impl.h"
#include "offload/disk_tier.h"
#include "offload/ram_tier.h"
#include "offload/stacked_tier.h"
#include "scheduler/block_pager.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/cuda/fake_cublas_lt.h"
#include "tests/support/cuda/fake_driver.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

class CudaStepsTest : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = read_golden_case("tests/golden/models", "llama-gqa-tied-f32");
    write_golden_checkpoint(golden_, checkpoint_.path());
    fake_.runs_kernels = true;
  }

  // `tier`: KV memory is for little more than one request then.
  std::unique_ptr<test::EngineFixture> make_fixture(std::int32_t steps_in_flight, bool late,
                                                    std::unique_ptr<KvTier> tier = nullptr) {
    fake_.runs_late = late;
    auto device = cuda::make_device(cuda::FakeDriver::api(), 0);
    EXPECT_TRUE(device) << device.error().message;
    EngineOptions options;
    options.max_num_seqs = 6;
    options.max_model_len = 64;
    options.token_budget = 12;
    options.block_size = 4;
    options.steps_in_flight = steps_in_flight;
    if (tier == nullptr) {
      return std::make_unique<test::EngineFixture>(checkpoint_.path(), options, 1,
                                                   std::move(*device));
    }
    options.decode_headroom = 0;
    options.kv_cache_memory = 13 * kBlockBytes;
    return std::make_unique<test::EngineFixture>(checkpoint_.path(), options, 1, std::move(*device),
                                                 nullptr, std::move(tier));
  }

  // Greedy, sampled, and in every third request with parameters that need the host.
  Request make_request(RequestId id) const {
    std::vector<TokenId> prompt = golden_.prompts[id % golden_.prompts.size()].ids;
    prompt.resize(std::min<std::size_t>(prompt.size(), 20));
    Request request = test::greedy_request(id, std::move(prompt), 6);
    SamplingParams& p = request.sampling;
    p.seed = id;
    if (id % 2 == 0) p.temperature = 0.9F;
    if (id % 4 == 0) p.top_k = 20;
    if (id % 4 == 2) p.top_p = 0.8F;
    if (id % 3 == 0) p.repetition_penalty = 1.3F;
    return request;
  }

  test::Results run(std::int32_t steps_in_flight, bool late) {
    const auto fixture = make_fixture(steps_in_flight, late);
    for (RequestId id = 1; id <= 6; ++id) fixture->add(make_request(id));
    return fixture->run_to_end();
  }
  // Requests whose rows the device samples, so that nothing but a copy of memory that is not pinned
  // makes the host wait for a stream.
  test::Results run_sampled_on_device(test::EngineFixture& fixture) const {
    for (RequestId id = 1; id <= 6; ++id) {
      Request request = make_request(id);
      request.prompt.clear();
      for (TokenId i = 0; i < 24; ++i) {
        request.prompt.push_back((static_cast<TokenId>(id) * 31 + i * 7) % 190);
      }
      request.sampling.repetition_penalty = 1.0F;
      fixture.add(std::move(request));
    }
    return fixture.run_to_end();
  }

  static std::unique_ptr<RamTier> open_ram() {
    auto tier = RamTier::open({.max_bytes = 200 * kBlockBytes, .block_bytes = kBlockBytes});
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }
  std::unique_ptr<KvTier> open_disk(const TempDirectory& folder) const {
    DiskTier::Options disk;
    disk.folder = folder.file("kv");
    disk.max_bytes = std::uint64_t{1} << 20;
    disk.segment_bytes = std::uint64_t{1} << 18;
    disk.free_bytes = 0;
    disk.block_bytes = kBlockBytes;
    disk.identity = "model";
    auto tier = DiskTier::open(disk, clock_);
    EXPECT_TRUE(tier) << tier.error().message;
    return *std::move(tier);
  }

  void expect_blocks_pass(bool late, std::unique_ptr<KvTier> tier) {
    const test::Results expected = run_sampled_on_device(*make_fixture(1, false));
    const auto fixture = make_fixture(0, late, std::move(tier));
    const int streams = fake_.calls["cuStreamSynchronize"];
    const PagingStats& paging = fixture->engine().scheduler().paging_stats();
    // Blocks are not loaded while computing them is faster, as measured.
    for (int round = 0; round < 2 || (round < 20 && paging.loaded_blocks == 0); ++round) {
      const test::Results results = run_sampled_on_device(*fixture);
      ASSERT_EQ(results.size(), expected.size());
      for (const auto& [key, result] : results) {
        EXPECT_EQ(result.tokens, expected.at(key).tokens) << "request " << key.first;
      }
    }
    EXPECT_EQ(fake_.calls["cuStreamSynchronize"], streams) << "a copy was not of pinned memory";
    EXPECT_GT(paging.saved_blocks, 10);
    EXPECT_GT(paging.loaded_blocks, 0);
    EXPECT_EQ(paging.failed_loads, 0);
    EXPECT_THAT(fake_.broken_rules, testing::IsEmpty());
  }

  // Three layers of two heads of 8 F32, keys and values, four tokens.
  static constexpr std::int64_t kBlockBytes = 3 * 2 * 8 * 4 * 2 * 4;

  cuda::FakeDriver fake_;
  SystemClock clock_;
  TempDirectory checkpoint_;
  GoldenCase golden_;
};

TEST_F(CudaStepsTest, RequestsGetTheSameHoweverLateTheDeviceRuns) {
  const test::Results expected = run(1, false);
  ASSERT_EQ(expected.size(), 6U);
  for (const std::int32_t steps_in_flight : {0, 1}) {
    const test::Results results = run(steps_in_flight, true);
    ASSERT_EQ(results.size(), expected.size());
    for (const auto& [key, result] : results) {
      EXPECT_EQ(result.tokens, expected.at(key).tokens)
          << "request " << key.first << ", steps in flight " << steps_in_flight;
    }
  }
  EXPECT_THAT(fake_.broken_rules, testing::IsEmpty());
}

// Blocks leave the GPU for host memory and come back, beside steps, through pinned buffers.
TEST_F(CudaStepsTest, BlocksPassThroughHostMemory) {
  for (const bool late : {false, true}) expect_blocks_pass(late, open_ram());
}

TEST_F(CudaStepsTest, BlocksPassThroughHostMemoryToADisk) {
  for (const bool late : {false, true}) {
    const TempDirectory folder;
    expect_blocks_pass(late, open_disk(folder));
  }
}

TEST_F(CudaStepsTest, BlocksPassThroughHostMemoryToRamBeforeADisk) {
  for (const bool late : {false, true}) {
    const TempDirectory folder;
    expect_blocks_pass(late, std::make_unique<StackedTier>(open_ram(), open_disk(folder)));
  }
}

TEST_F(CudaStepsTest, ADecodeStepWaitsOnceAndForTheStepBefore) {
  const auto fixture = make_fixture(0, true);
  test::Results results;
  for (RequestId id = 1; id <= 2; ++id) {
    fixture->add(test::greedy_request(id, {1, 2, 3}, 20));
  }
  for (int i = 0; i < 3; ++i) fixture->step(results);
  for (int i = 0; i < 8; ++i) {
    const int waits = fake_.calls["cuEventSynchronize"];
    const int drains = fake_.calls["cuStreamSynchronize"];
    const int launches = fake_.calls["cuGraphLaunch"];
    fixture->step(results);
    EXPECT_EQ(fake_.calls["cuEventSynchronize"], waits + 1);
    EXPECT_EQ(fake_.calls["cuStreamSynchronize"], drains);
    EXPECT_EQ(fake_.calls["cuGraphLaunch"], launches + 1);
    EXPECT_GT(fake_.outstanding(), 0U) << "the GPU has nothing to do while the host plans";
  }
  // The fake runs the next step only when the host waits for it; until then it counts as idle.
  EXPECT_EQ(fixture->engine().stats().device.idle, Duration(0));
  fake_.milliseconds = 7.0F;
  fixture->step(results);
  EXPECT_EQ(fixture->engine().stats().device.idle, std::chrono::milliseconds(7));
  while (fixture->engine().has_work()) fixture->step(results);
  EXPECT_EQ(results.at({1, 0}).tokens.size(), 20U);
  EXPECT_EQ(results.at({1, 0}).tokens, results.at({2, 0}).tokens);
}

// Three layers of four products each, and one to logits; without tensor cores, four rows at a time.
TEST_F(CudaStepsTest, ComputedPaddingIsCounted) {
  for (const std::int32_t steps_in_flight : {1, 2}) {
    const auto fixture = make_fixture(steps_in_flight, true);
    fixture->add(test::greedy_request(1, {1, 2, 3, 4, 5}, 3));  // steps of 5, 1 and 1 tokens
    fixture->run_to_end();
    const ComputedWork& computed = fixture->engine().stats().computed;
    EXPECT_EQ(computed.matmul_rows, 3 * 4 * (8 + 4 + 4) + 3 * 4);
    EXPECT_EQ(computed.matmul_rows_padding, computed.matmul_rows - (3 * 4 * (5 + 1 + 1) + 3));
    // 8 heads, 4 per KV head: visible keys, and warps' tiles of 16 queries by 32 keys. A prompt's
    // 20 queries need a second tile.
    const std::int64_t seen = 3 * 8 * (1 + 2 + 3 + 4 + 5 + 6 + 7);
    EXPECT_EQ(computed.attention_pairs, 3 * 2 * 16 * 32 * (2 + 1 + 1));
    EXPECT_EQ(computed.attention_pairs_padding, computed.attention_pairs - seen);
  }
}

// Launches of a layer: those of a step's graph without embedding, gathering and sampling, the last
// norm and the product with lm_head. Graphs by the rows their norms have room for.
std::map<std::uint32_t, double> launches_of_a_layer(const cuda::FakeDriver& fake, int layers) {
  using cuda::KernelId;
  std::map<std::uint32_t, double> counts;
  for (const auto& [executable, launches] : fake.executables) {
    std::uint32_t rows = 0;
    int of_layers = -2;
    for (const cuda::FakeDriver::Launch& launch : launches) {
      const bool ours = !launch.library;
      if (ours && launch.kernel == KernelId::kRmsNorm) rows = launch.shape.grid_x;
      const bool once =
          ours && (launch.kernel == KernelId::kEmbed || launch.kernel == KernelId::kGatherRows ||
                   launch.kernel == KernelId::kSample);
      if (!once) ++of_layers;
    }
    counts[rows] = static_cast<double>(of_layers) / layers;
  }
  return counts;
}

class CudaLaunchesTest : public CudaStepsTest {
 protected:
  void SetUp() override {
    golden_ = read_golden_case("tests/golden/models", "qwen2-gqa7-tied");
    ASSERT_EQ(golden_.dtype, "bf16") << "tensor cores and the library take no F32";
    write_golden_checkpoint(golden_, checkpoint_.path());
    fake_.runs_kernels = false;  // the recorded calls suffice
  }

  // A prompt of 70 tokens in one step, then decodes.
  std::map<std::uint32_t, double> run(const cuda::CublasLtApi* library) {
    auto device = cuda::make_device(cuda::FakeDriver::api(), 0, {}, library);
    EXPECT_TRUE(device) << device.error().message;
    EngineOptions options;
    options.max_num_seqs = 2;
    options.max_model_len = 128;
    options.token_budget = 80;
    options.block_size = 4;
    test::EngineFixture fixture(checkpoint_.path(), options, 1, std::move(*device));
    std::vector<TokenId> prompt(70, 3);
    fixture.add(test::greedy_request(1, std::move(prompt), 4));
    EXPECT_EQ(fixture.run_to_end().at({1, 0}).tokens.size(), 4U);
    EXPECT_EQ(fake_.reserved.size(), 1U) << "graphs hold addresses of the arena alone";
    computed_ = fixture.engine().stats().computed;
    return launches_of_a_layer(fake_, 3);
  }

  cuda::FakeCublasLt library_;
  ComputedWork computed_;
};

// Norm, q k v, rotation and KV, attention, o, norm, gate and up, down.
TEST_F(CudaLaunchesTest, ADenseLayerIsEight) {
  const auto counts = run(nullptr);
  ASSERT_GE(counts.size(), 2U);
  for (const auto& [rows, count] : counts) EXPECT_EQ(count, 8.0) << rows << " rows";
}

// After a product of the library, activation is a launch of its own. Weights and biases of a
// product are one call. Up to 64 tokens, built-in kernels always compute gate and up.
TEST_F(CudaLaunchesTest, WithALibraryAPrefillLayerIsNine) {
  const cuda::CublasLtApi api = cuda::FakeCublasLt::api();
  const auto counts = run(&api);
  ASSERT_GE(counts.size(), 2U);
  EXPECT_EQ(counts.begin()->second, 8.0) << counts.begin()->first << " rows";
  EXPECT_EQ(counts.rbegin()->second, 9.0) << counts.rbegin()->first << " rows";
  // The library computes the 80 rows of the prompt's graph, and its 66 rows of logits: 2 sequences
  // and 64 positions to score. Built-in kernels compute 8 rows for a decode and for its logits.
  // Three layers of four products.
  EXPECT_EQ(computed_.matmul_rows, 3 * 4 * (80 + 3 * 8) + 66 + 3 * 8);
  EXPECT_EQ(computed_.matmul_rows_padding, computed_.matmul_rows - (3 * 4 * (70 + 3) + 4));
  EXPECT_THAT(library_.broken_rules, testing::IsEmpty());
}

}  // namespace
}  // namespace sluice
