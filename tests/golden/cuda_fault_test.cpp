// GPU faults under an engine on the CUDA backend, injected by a fake driver: requests end, the
// process stays alive, and the message says where to look.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/device_impl.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/cuda/fake_driver.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = read_golden_case("tests/golden/models", "llama-gqa-tied-f32");
    write_golden_checkpoint(golden_, checkpoint_.path());
    fake_.runs_kernels = true;
    auto device = cuda::make_device(cuda::FakeDriver::api(), 0);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    options_.max_num_seqs = 2;
  }

  // The message of a failed load; empty when loading works.
  Error load_error(const std::string& directory, Device& device) const {
    ThreadPool pool(1);
    const SystemClock clock;
    StartupTimeline timeline(clock);
    const auto loaded = load_engine(directory, options_, device, pool, clock, timeline);
    return loaded ? Error{} : loaded.error();
  }

  cuda::FakeDriver fake_;
  TempDirectory checkpoint_;
  GoldenCase golden_;
  std::unique_ptr<Device> device_;
  EngineOptions options_;
};

TEST_F(CudaFaultTest, AKernelsFaultEndsTheRequestsAndNotTheProcess) {
  Device& device = *device_;
  test::EngineFixture fixture(checkpoint_.path(), options_, 1, std::move(device_));
  fixture.add(test::greedy_request(1, golden_.prompts[0].ids, 8));
  test::Results results;
  fixture.step(results);
  // The embedding table has no such token id, so the kernel traps.
  const std::int32_t beyond = 1 << 30;
  const auto range = device.reserve(1);
  ASSERT_TRUE(range && device.back(*range, 0, range->bytes, Backing::memory()));
  ASSERT_TRUE(device.copy_to_device(range->base, &beyond, sizeof(beyond)));
  const TensorView row = matrix_view(range->base + 64, DType::kF32, 1, 4);
  device.ops().run(
      EmbedParams{row, reinterpret_cast<const std::int32_t*>(range->base), row, {nullptr, 1}});

  const auto step = fixture.engine().step();
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(step.error().message, AllOf(HasSubstr("submitted before it, embed last"),
                                          HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
  const auto added = fixture.engine().add_request(test::greedy_request(2, {1, 2}, 1));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kUnavailable);
  device.unback(*range, 0, range->bytes);
  device.release(*range);
}

TEST_F(CudaFaultTest, AnOlderGpuRefusesFp8AndSaysWhatWorks) {
  fake_.capability = 8;
  const auto older = cuda::make_device(cuda::FakeDriver::api(), 0);
  ASSERT_TRUE(older) << older.error().message;
  const auto error_of = [&](const std::string& directory) {
    return load_error(directory, **older);
  };
  const TempDirectory fp8;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-fp8-tensor"), fp8.path());
  EXPECT_EQ(error_of(fp8.path()).code, ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(fp8.path()).message,
              AllOf(HasSubstr("(--dtype auto): cuda:0 has capability 8.0"),
                    HasSubstr("use --dtype bf16, which expands them")));
  options_.dtype = DType::kF8E4M3;
  EXPECT_THAT(
      error_of(checkpoint_.path()).message,
      AllOf(HasSubstr("--dtype fp8: cuda:0 has capability 8.0, and weights in FP8 need 9.0"),
            HasSubstr("use --dtype f32, or --device cpu")));
  options_.dtype = DType::kBF16;
  options_.kv_cache_memory = std::int64_t{1} << 20;
  EXPECT_EQ(error_of(fp8.path()).message, "");
}

TEST_F(CudaFaultTest, RefusesIntegerWeightsBeforeLoading) {
  options_.dtype = DType::kI8;
  const Error error = load_error(checkpoint_.path(), *device_);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(error.message,
            "--dtype int8: cuda:0 has no kernels for integer weights; use --dtype f32 or fp8, or "
            "--device cpu");
}

TEST_F(CudaFaultTest, AModelThatDoesNotFitSaysHowMuchIsMissing) {
  options_.kv_cache_memory = std::int64_t{3} << 30;
  const Error error = load_error(checkpoint_.path(), *device_);
  ASSERT_FALSE(error.message.empty());
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, HasSubstr("--kv-cache-memory"));
  EXPECT_THAT(fake_.allocations, testing::IsEmpty()) << "memory was not freed";
  EXPECT_THAT(fake_.broken_rules, testing::IsEmpty());
}

// The message must not advise less KV memory: there is none yet.
TEST_F(CudaFaultTest, WeightsThatDoNotFitSayHowMuchIsMissing) {
  fake_.free_memory = std::size_t{1} << 20;
  const Error error = load_error(checkpoint_.path(), *device_);
  ASSERT_FALSE(error.message.empty());
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("cuda:0: weights, inputs, workspace"), HasSubstr("0.00 GiB are free"),
                    HasSubstr("0.19 GiB are missing"), HasSubstr("--max-num-seqs"),
                    HasSubstr("--dtype"), testing::Not(HasSubstr("--kv-cache-memory"))));
  EXPECT_THAT(fake_.allocations, testing::IsEmpty());
}

}  // namespace
}  // namespace sluice
