#include "device/cuda/kernel_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class KernelSetTest : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = Gpu::open(FakeDriver::api(), 0);
    ASSERT_TRUE(gpu);
    gpu_ = std::move(*gpu);
  }
  FakeDriver fake_;
  std::unique_ptr<Gpu> gpu_;
};

TEST(DeviceCodes, AreFatBinaries) {
  for (const DeviceCode& code : device_codes()) {
    ASSERT_GT(code.bytes.size(), 1000U) << code.name;
    std::uint32_t magic = 0;
    std::uint64_t bytes = 0;
    std::memcpy(&magic, code.bytes.data(), sizeof(magic));
    std::memcpy(&bytes, code.bytes.data() + 8, sizeof(bytes));
    EXPECT_EQ(magic, 0xBA55ED50U) << code.name;
    EXPECT_EQ(bytes + 16, code.bytes.size()) << code.name << ": the container is there whole";
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(code.bytes.data()) % 64, 0U) << code.name;
  }
}

TEST(DeviceCodes, HaveEveryKernel) {
  for (std::size_t i = 0; i < kNumKernels; ++i) {
    const KernelInfo& info = kernel_info(static_cast<KernelId>(i));
    const auto bytes = device_codes()[info.code].bytes;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EXPECT_EQ(info.symbol, "sluice_" + std::string(info.name));
    EXPECT_LE(info.parameter_bytes, 4096U) << "what every driver takes as parameters";
    // Compressed code shows its names no more: then this says nothing, and the loader checks.
    if (text.find(".text.") == std::string_view::npos) continue;
    EXPECT_NE(text.find(std::string(".text.") + info.symbol), std::string_view::npos) << info.name;
  }
}

TEST_F(KernelSetTest, LoadsAllCodeBeforeAnythingRuns) {
  {
    const auto kernels = KernelSet::load(*gpu_);
    ASSERT_TRUE(kernels) << kernels.error().message;
    EXPECT_EQ(fake_.modules, static_cast<int>(device_codes().size()));
    EXPECT_EQ(fake_.calls["cuFuncLoad"], static_cast<int>(kNumKernels));
  }
  EXPECT_EQ(fake_.modules, 0);
}

TEST(KernelSet, AGpuOfLittleSharedMemoryLoadsWhatItCannotRun) {
  FakeDriver fake;
  fake.shared_bytes_optin = 163 << 10;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  EXPECT_EQ((*gpu)->info().shared_bytes, 163 << 10);
  ASSERT_GT(kernel_info(KernelId::kAttentionBf16D256).shared_bytes, 163 << 10);
  const auto kernels = KernelSet::load(**gpu);
  EXPECT_TRUE(kernels) << kernels.error().message;
}

TEST_F(KernelSetTest, AGpuWithoutCodeSaysHowToBuildForIt) {
  fake_.fails["cuModuleLoadData"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
  const auto kernels = KernelSet::load(*gpu_);
  ASSERT_FALSE(kernels);
  EXPECT_EQ(kernels.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(kernels.error().message,
              AllOf(HasSubstr("Fake GPU has capability 9.0"),
                    HasSubstr("-DSLUICE_CUDA_ARCHITECTURES=90"), HasSubstr("--device cpu")));
}

TEST_F(KernelSetTest, AParameterOfAnotherSizeOnTheDeviceIsFoundAtOnce) {
  fake_.parameter_bytes["sluice_attention"] = 8;
  const auto kernels = KernelSet::load(*gpu_);
  ASSERT_FALSE(kernels);
  EXPECT_EQ(kernels.error().code, ErrorCode::kInternal);
  EXPECT_THAT(kernels.error().message,
              AllOf(HasSubstr("sluice_attention has 8 bytes"),
                    HasSubstr(std::to_string(sizeof(AttentionParams)) + " at 0 on the host")));
  EXPECT_EQ(fake_.modules, 0);
}

TEST_F(KernelSetTest, LaunchesWithACopyOfTheParameters) {
  const auto kernels = KernelSet::load(*gpu_);
  ASSERT_TRUE(kernels);
  CopyBlocksParams params;
  params.block_bytes = 12345;
  params.rows.capacity = 6;
  (*kernels)->launch({KernelId::kCopyBlocks, {4, 2, 256, 0}}, &params, sizeof(params));
  ASSERT_EQ(fake_.launches.size(), 1U);
  const FakeDriver::Launch& launch = fake_.launches[0];
  EXPECT_EQ(launch.kernel, KernelId::kCopyBlocks);
  EXPECT_EQ(launch.shape, (LaunchShape{4, 2, 256, 0}));
  EXPECT_EQ(std::memcmp(launch.params.data(), &params, sizeof(params)), 0);
}

TEST_F(KernelSetTest, AnEmptyShapeIsNoLaunch) {
  const auto kernels = KernelSet::load(*gpu_);
  ASSERT_TRUE(kernels);
  const CopyBlocksParams params;
  (*kernels)->launch({KernelId::kCopyBlocks, {0, 1, 256, 0}}, &params, sizeof(params));
  EXPECT_EQ(fake_.calls["cuLaunchKernel"], 0);
  EXPECT_TRUE(gpu_->health());
  const EmbedParams wrong;
  EXPECT_DEATH((*kernels)->launch({KernelId::kCopyBlocks, {1, 1, 256, 0}}, &wrong, sizeof(wrong)),
               "CHECK failed");
}

TEST_F(KernelSetTest, ALaunchThatFailsNamesItsOp) {
  const auto kernels = KernelSet::load(*gpu_);
  ASSERT_TRUE(kernels);
  fake_.fails["cuLaunchKernel"] = CUDA_ERROR_LAUNCH_FAILED;
  const CopyBlocksParams params;
  (*kernels)->launch({KernelId::kCopyBlocks, {1, 1, 256, 0}}, &params, sizeof(params));
  ASSERT_FALSE(gpu_->health());
  EXPECT_EQ(gpu_->health().error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(gpu_->health().error().message,
              AllOf(HasSubstr("copy_blocks"), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")));
}

}  // namespace
}  // namespace sluice::cuda
