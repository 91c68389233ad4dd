#include "device/cuda/attention_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

using testing::HasSubstr;

alignas(16) char somewhere[64];

GpuInfo h200() { return {"H200", 9, 0, 132, 227 << 10, 0}; }

AttentionParams attention_of(std::int32_t head_dim, DType kv) {
  AttentionParams p;
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_dim = head_dim;
  p.q = matrix_view(somewhere, DType::kF32, 9, 8 * head_dim, 12 * head_dim);
  p.out = matrix_view(somewhere, DType::kBF16, 9, 8 * head_dim);
  p.kv = {somewhere, somewhere, kv, 16, 64L * head_dim, 16L * head_dim, head_dim};
  p.seqs = {nullptr, 3};
  return p;
}

AttentionLaunch launch_of(const AttentionParams& p, const GpuInfo& gpu = h200()) {
  const auto launch = launch_attention(p, gpu);
  EXPECT_TRUE(launch) << launch.error().message;
  return launch ? *launch : AttentionLaunch{};
}

TEST(AttentionLaunch, TensorCoresWithAFixedGrid) {
  const AttentionLaunch launch = launch_of(attention_of(128, DType::kBF16));
  EXPECT_EQ(launch.kernel, KernelId::kAttentionBf16D128);
  EXPECT_EQ(launch.shape, (LaunchShape{264, 1, 128, 13 * 8192}));
  EXPECT_EQ(launch.why_plain, "");
  AttentionParams more = attention_of(128, DType::kBF16);
  more.q = matrix_view(somewhere, DType::kF32, 900, 8 * 128);
  more.out = matrix_view(somewhere, DType::kBF16, 900, 8 * 128);
  EXPECT_EQ(launch_of(more).shape, launch.shape) << "whatever the step";
}

TEST(AttentionLaunch, AKernelForEachTypeAndSizeOfHeads) {
  EXPECT_EQ(launch_of(attention_of(8, DType::kF16)).kernel, KernelId::kAttentionF16D64);
  EXPECT_EQ(launch_of(attention_of(64, DType::kBF16)).kernel, KernelId::kAttentionBf16D64);
  EXPECT_EQ(launch_of(attention_of(72, DType::kF16)).kernel, KernelId::kAttentionF16D128);
  EXPECT_EQ(launch_of(attention_of(136, DType::kBF16)).kernel, KernelId::kAttentionBf16D256);
  EXPECT_EQ(launch_of(attention_of(256, DType::kF16)).kernel, KernelId::kAttentionF16D256);
  EXPECT_EQ(attention_blocks(h200(), 64), 132 * 3);
  EXPECT_EQ(attention_blocks(h200(), 256), 132);
}

void expect_plain(const AttentionParams& p, const char* why, const GpuInfo& gpu = h200()) {
  const AttentionLaunch launch = launch_of(p, gpu);
  EXPECT_EQ(launch.kernel, KernelId::kAttention);
  EXPECT_EQ(launch.shape, (LaunchShape{9, 8, 32, 0}));
  EXPECT_THAT(launch.why_plain, HasSubstr(why));
}

TEST(AttentionLaunch, ThePlainKernelTakesTheRestAndSaysWhy) {
  expect_plain(attention_of(128, DType::kF32), "keys and values are f32");
  expect_plain(attention_of(20, DType::kBF16), "head_dim 20 is not a multiple of 8");
  AttentionParams p = attention_of(64, DType::kBF16);
  p.kv.head_stride += 4;
  expect_plain(p, "a KV stride of 1028");
  p = attention_of(64, DType::kBF16);
  p.kv.v_base = somewhere + 8;
  expect_plain(p, "not at multiples of 16 bytes");
  p = attention_of(64, DType::kBF16);
  p.q.strides[0] += 1;
  expect_plain(p, "unaligned addresses");
}

TEST(AttentionLaunch, AGpuOfLittleSharedMemory) {
  GpuInfo small = h200();
  small.shared_bytes = 163 << 10;
  EXPECT_EQ(attention_blocks(small, 128), 132);
  expect_plain(attention_of(256, DType::kBF16), "208 KiB of shared memory are needed", small);
}

TEST(AttentionLaunch, BlocksThatDoNotFitAreTold) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  const auto kernels = KernelSet::load(**gpu);
  ASSERT_TRUE(kernels);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(check_attention_blocks(**kernels, (*gpu)->info()));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  fake.blocks_that_fit = 2;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(check_attention_blocks(**kernels, (*gpu)->info()));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              HasSubstr("a multiprocessor holds 2 blocks of sluice_attention_bf16_64, expected 3"));
  EXPECT_THAT(log, testing::Not(HasSubstr("_128")));
}

TEST(AttentionLaunch, ParametersThatNoKernelTakesAreRefused) {
  const auto launch = launch_attention(attention_of(512, DType::kBF16), h200());
  ASSERT_FALSE(launch);
  EXPECT_THAT(launch.error().message, HasSubstr("head_dim 512"));
}

}  // namespace
}  // namespace sluice::cuda
