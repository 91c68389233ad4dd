#include "device/cuda/matmul_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "device/cuda/kernels/matmul_tiles.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda {
namespace {

alignas(16) std::byte somewhere[64];

TensorView at(std::size_t offset, std::int64_t rows, std::int64_t cols, DType dtype,
              std::int64_t stride = 0) {
  return matrix_view(somewhere + offset, dtype, rows, cols, stride == 0 ? cols : stride);
}

MatmulParams product(std::int64_t capacity, std::int64_t columns, std::int64_t depth,
                     DType dtype = DType::kBF16) {
  MatmulParams p;
  p.x = at(0, capacity, depth, dtype);
  p.segments[0].weight = at(0, columns, depth, dtype);
  p.num_segments = 1;
  p.out = at(0, capacity, columns, DType::kF32);
  p.rows = {nullptr, static_cast<std::int32_t>(capacity)};
  return p;
}

MatmulPlan plan(const MatmulParams& p, bool deterministic = false) {
  const auto plan = plan_matmul(p, {deterministic, 132});
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : MatmulPlan{};
}

KernelId kernel_for(std::int64_t capacity, std::int64_t columns, bool deterministic = false) {
  return plan(product(capacity, columns, 4096), deterministic).kernel;
}

TEST(MatmulPlan, FewRowsStreamTheWeights) {
  EXPECT_EQ(kernel_for(1, 4096), KernelId::kMatmul8);
  EXPECT_EQ(kernel_for(8, 4096), KernelId::kMatmul8);
  EXPECT_EQ(kernel_for(9, 4096), KernelId::kMatmul16);
  EXPECT_EQ(kernel_for(16, 28672), KernelId::kMatmul16);
  EXPECT_EQ(kernel_for(17, 28672), KernelId::kMatmul64);
  EXPECT_EQ(plan(product(8, 4100, 64)).shape, (LaunchShape{257, 1, 256, 0}));
  EXPECT_EQ(plan(product(16, 4100, 64)).shape, (LaunchShape{129, 1, 256, 0}));
}

GatedMatmulParams gated_product(std::int64_t capacity, std::int64_t width, std::int64_t depth) {
  GatedMatmulParams p;
  p.x = at(0, capacity, depth, DType::kBF16);
  p.gate.weight = at(0, width, depth, DType::kBF16);
  p.up.weight = p.gate.weight;
  p.scratch = at(0, capacity, 2 * width, DType::kF32);
  p.out = at(0, capacity, width, DType::kBF16);
  p.rows = {nullptr, static_cast<std::int32_t>(capacity)};
  return p;
}

TEST(MatmulPlan, GatedProductsByTheSameRules) {
  const auto plan_for = [](std::int64_t capacity, std::int64_t width, bool deterministic = false) {
    return *plan_matmul(gated_product(capacity, width, 64), {deterministic, 132});
  };
  EXPECT_EQ(plan_for(8, 8200).kernel, KernelId::kGatedMatmul8);
  EXPECT_EQ(plan_for(8, 8200).shape, (LaunchShape{1025, 1, 256, 0})) << "8 of gate, 8 of up";
  EXPECT_EQ(plan_for(16, 8200).kernel, KernelId::kGatedMatmul16);
  EXPECT_EQ(plan_for(16, 8200).shape, (LaunchShape{513, 1, 256, 0}));
  EXPECT_EQ(plan_for(16, 64).kernel, KernelId::kGatedMatmul16);
  EXPECT_EQ(plan_for(17, 8200).kernel, KernelId::kGatedMatmul64);
  EXPECT_FALSE(plan_for(64, 8200).many_rows) << "with a library it would be two launches";
  EXPECT_TRUE(plan_for(65, 8200).many_rows);
  EXPECT_EQ(plan_for(64, 8200).shape, (LaunchShape{1, 257, 256, 98304}));
  EXPECT_EQ(plan_for(129, 8200).kernel, KernelId::kGatedMatmul128);
  EXPECT_EQ(plan_for(1, 8200, true).kernel, KernelId::kGatedMatmul64);
  GatedMatmulParams p = gated_product(5, 64, 64);
  p.up.weight.dtype = DType::kF16;
  EXPECT_EQ(plan_matmul(p, {})->kernel, KernelId::kGatedMatmul) << "two types";
  p = gated_product(5, 64, 64);
  p.up.weight.dims[0] = 63;
  EXPECT_FALSE(plan_matmul(p, {}));
}

MatmulParams fp8_product(std::int64_t capacity, std::int64_t columns, std::int64_t depth,
                         std::int32_t block = 128) {
  static float scale = 1.0F;
  MatmulParams p = product(capacity, columns, depth);
  p.segments[0].weight = at(0, columns, depth, DType::kF8E4M3);
  p.segments[0].scales = {&scale, block, block, (depth + block - 1) / block};
  return p;
}

TEST(MatmulPlan, Fp8HasKernelsOfItsOwn) {
  const auto kernel = [](std::int64_t capacity, bool deterministic = false) {
    return plan(fp8_product(capacity, 28672, 4096), deterministic).kernel;
  };
  EXPECT_EQ(kernel(8), KernelId::kMatmulFp8By8);
  EXPECT_EQ(kernel(16), KernelId::kMatmulFp8By16);
  EXPECT_EQ(plan(fp8_product(16, 2048, 4096)).kernel, KernelId::kMatmulFp8By16Narrow);
  EXPECT_EQ(kernel(64), KernelId::kMatmulFp8By64);
  EXPECT_EQ(kernel(65), KernelId::kMatmulFp8By128);
  EXPECT_EQ(kernel(1, true), KernelId::kMatmulFp8By64);
  EXPECT_EQ(plan(fp8_product(200, 1000, 256)).shape, (LaunchShape{4, 16, 256, 90112}));
  EXPECT_EQ(plan(fp8_product(200, 28672, 256)).shape, (LaunchShape{2, 448, 256, 98304}));
  GatedMatmulParams gated;
  const MatmulParams p = fp8_product(8, 64, 256);
  gated.x = p.x;
  gated.gate = gated.up = p.segments[0];
  gated.scratch = at(0, 8, 128, DType::kF32);
  gated.out = at(0, 8, 64, DType::kBF16);
  gated.rows = p.rows;
  EXPECT_EQ(plan_matmul(gated, {})->kernel, KernelId::kGatedMatmulFp8By8);
  gated.up.scales.block_cols = 64;
  EXPECT_EQ(plan_matmul(gated, {})->kernel, KernelId::kGatedMatmul) << "gate and up unlike";
}

TEST(MatmulPlan, OtherFp8ProductsGoToThePlainKernel) {
  const auto is_plain = [](const MatmulParams& p) { return plan(p).kernel == KernelId::kMatmul; };
  EXPECT_FALSE(is_plain(fp8_product(5, 64, 64))) << "one block as long as K";
  EXPECT_FALSE(is_plain(fp8_product(5, 64, 208, 208)));
  EXPECT_FALSE(is_plain(fp8_product(5, 64, 256, 64)));
  EXPECT_TRUE(is_plain(fp8_product(5, 64, 256, 32))) << "blocks within a slab";
  EXPECT_TRUE(is_plain(fp8_product(5, 64, 256, 192))) << "no power of two";
  EXPECT_TRUE(is_plain(fp8_product(5, 64, 72))) << "rows at multiples of 8 bytes";
  MatmulParams p = fp8_product(5, 64, 64);
  p.segments[0].weight = at(8, 64, 64, DType::kF8E4M3);
  EXPECT_TRUE(is_plain(p));
  p = fp8_product(5, 64, 64);
  p.x.dtype = DType::kF32;
  EXPECT_TRUE(is_plain(p));
  p = fp8_product(5, 64, 64);
  p.num_segments = 2;
  p.segments[1].weight = at(0, 64, 64, DType::kBF16);
  p.out = at(0, 5, 128, DType::kF32);
  EXPECT_TRUE(is_plain(p)) << "two types";
  p = fp8_product(5, 64, 64);
  p.segments[0].scales = {};
  EXPECT_FALSE(plan_matmul(p, {})) << "no scales";
}

// K is not split over blocks for weights of few rows, since the kernels for few tokens have enough
// bytes on their way from memory for all shapes from 1B on. "Enough" is an assumption about an
// H200: 4.8 TB/s, and 0.75 us until bytes arrive.
TEST(MatmulPlan, EnoughBytesAreOnTheirWay) {
  constexpr double kNeeded = 4.8e12 * 0.75e-6;
  constexpr int kMultiprocessors = 132;
  constexpr int kBlocksThatFit = 2 * kMultiprocessors;  // kernels ask for it: __launch_bounds__
  struct Weight {
    const char* name;
    std::int64_t rows;
    std::int64_t depth;
  };
  const Weight weights[] = {{"1B qkv", 3072, 2048}, {"1B o", 2048, 2048}, {"1B down", 2048, 8192},
                            {"3B qkv", 5120, 3072}, {"3B o", 3072, 3072}, {"3B down", 3072, 8192},
                            {"8B qkv", 6144, 4096}, {"8B o", 4096, 4096}, {"8B down", 4096, 14336}};
  for (const Weight& weight : weights) {
    for (const std::int64_t rows : {1, 8, 9, 16}) {
      const MatmulPlan made = plan(product(rows, weight.rows, weight.depth));
      const StreamShape& shape = made.kernel == KernelId::kMatmul8    ? kStream8
                                 : made.kernel == KernelId::kMatmul16 ? kStream16
                                                                      : kStream16Narrow;
      const int blocks = std::min(static_cast<int>(made.shape.grid_x), kBlocksThatFit);
      EXPECT_GE(blocks * shape.bytes_ahead(), kNeeded) << weight.name << ", " << rows << " rows";
    }
  }
}

TEST(MatmulPlan, BlocksThatDoNotFitAreTold) {
  FakeDriver fake;
  const auto gpu = Gpu::open(FakeDriver::api(), 0);
  ASSERT_TRUE(gpu);
  const auto kernels = KernelSet::load(**gpu);
  ASSERT_TRUE(kernels);
  for (const int fit : {2, 1}) {
    fake.blocks_that_fit = fit;
    testing::internal::CaptureStderr();
    EXPECT_TRUE(check_matmul_blocks(**kernels, (*gpu)->info()));
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("holds 1 blocks of sluice_matmul_128, expected 2") != log.npos, fit < 2)
        << log;
  }
}

TEST(MatmulPlan, NarrowBlocksWhereWideOnesLeaveManyIdle) {
  EXPECT_EQ(kernel_for(16, 3696), KernelId::kMatmul16) << "116 of 132";
  EXPECT_EQ(kernel_for(16, 3680), KernelId::kMatmul16Narrow) << "115";
  EXPECT_EQ(kernel_for(8, 2048), KernelId::kMatmul8);
  EXPECT_EQ(plan(product(16, 2048, 64)).shape, (LaunchShape{128, 1, 256, 0}));
}

TEST(MatmulPlan, LargeTilesWhereTheyFillTheGpu) {
  EXPECT_EQ(kernel_for(64, 128256), KernelId::kMatmul64);
  EXPECT_EQ(kernel_for(65, 128256), KernelId::kMatmul128);
  EXPECT_EQ(kernel_for(512, 4096), KernelId::kMatmul64);   // 4 x 32 blocks
  EXPECT_EQ(kernel_for(513, 4096), KernelId::kMatmul128);  // 5 x 32
  EXPECT_EQ(plan(product(200, 28672, 64)).shape, (LaunchShape{2, 224, 256, 98304}));
  EXPECT_EQ(plan(product(200, 1000, 64)).shape, (LaunchShape{4, 16, 256, 98304}));
}

TEST(MatmulPlan, DeterministicMeansOneOrderForAllCapacities) {
  for (const int capacity : {1, 8, 16, 64}) {
    EXPECT_EQ(kernel_for(capacity, 4096, true), KernelId::kMatmul64) << capacity;
  }
  EXPECT_EQ(kernel_for(2048, 4096, true), KernelId::kMatmul128) << "the same bits";
}

TEST(MatmulPlan, EachSegmentStartsATile) {
  MatmulParams p = product(4, 16 + 17 + 1, 64);
  p.num_segments = 3;
  for (int s = 0; s < 3; ++s) {
    p.segments[s].weight =
        at(0, std::array{16, 17, 1}[static_cast<std::size_t>(s)], 64, DType::kBF16);
  }
  EXPECT_EQ(plan(p).shape.grid_x, 1U + 2U + 1U);
}

TEST(MatmulPlan, OtherProductsGoToThePlainKernel) {
  const auto is_plain = [](const MatmulParams& p) {
    return plan(p).kernel == KernelId::kMatmul && plan(p, true).kernel == KernelId::kMatmul;
  };
  EXPECT_FALSE(is_plain(product(5, 64, 64, DType::kF16)));
  EXPECT_TRUE(is_plain(product(5, 64, 64, DType::kF32)));
  EXPECT_TRUE(is_plain(product(5, 64, 68))) << "rows at multiples of 8 bytes";
  MatmulParams p = product(5, 64, 64);
  p.x.dtype = DType::kF32;
  EXPECT_TRUE(is_plain(p)) << "two types";
  p = product(5, 64, 64);
  p.x = at(8, 5, 64, DType::kBF16);
  EXPECT_TRUE(is_plain(p)) << "x at 8";
  p.x = at(0, 5, 64, DType::kBF16, 68);
  EXPECT_TRUE(is_plain(p)) << "rows of x 136 bytes apart";
  p.x = at(0, 5, 64, DType::kBF16, 72);
  EXPECT_FALSE(is_plain(p));
  p.segments[0].weight = at(2, 64, 64, DType::kBF16);
  EXPECT_TRUE(is_plain(p)) << "weight at 2";
}

TEST(MatmulPlan, ErrorsAreThoseOfTheShape) {
  MatmulParams p = product(5, 64, 64);
  p.num_segments = 4;
  const auto refused = plan_matmul(p, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("4 segments"));
  EXPECT_TRUE(plan(product(0, 64, 64)).shape.empty());
  const auto wide = plan_matmul(product(20, std::int64_t{5} << 20, 64), {});
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace sluice::cuda
