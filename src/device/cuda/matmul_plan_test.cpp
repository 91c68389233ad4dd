#include "device/cuda/matmul_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

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

TEST(MatmulPlan, WhatTensorCoresDoNotTakeGoesToThePlainKernel) {
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
