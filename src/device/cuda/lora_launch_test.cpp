#include "device/cuda/lora_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

alignas(64) char lora_place[64];  // somewhere to point to

LoraTable lora_table(std::int32_t modules, std::int32_t max_rank, DType dtype) {
  LoraTable t;
  t.base = lora_place;
  t.num_modules = modules;
  t.max_rank = max_rank;
  t.dtype = dtype;
  return t;
}

LoraShrinkParams shrink_params(std::int64_t depth, DType dtype) {
  LoraShrinkParams p;
  p.x = matrix_view(lora_place, dtype, 64, depth);
  p.table = lora_table(3, 20, dtype);
  p.batch.num_segments = {nullptr, 32};
  p.h.parts = LoraHidden::parts_of(depth);
  p.h.capacity = 64;
  return p;
}

LoraExpandParams expand_params() {
  LoraExpandParams p;
  p.table = lora_table(2, 20, DType::kBF16);
  p.batch.num_segments = {nullptr, 32};
  p.widths[0] = 257;
  p.widths[1] = 256;
  p.out = matrix_view(lora_place, DType::kF32, 64, 513);
  return p;
}

template <class Params>
void expect_lora_refused(const Params& p, ErrorCode code, const char* text) {
  const auto launch = plan_launch(p);
  ASSERT_FALSE(launch) << text;
  EXPECT_EQ(launch.error().code, code) << launch.error().message;
  EXPECT_THAT(launch.error().message, testing::HasSubstr(text));
}

TEST(LoraLaunch, ABlockForEveryPartModuleAndSixteenRanksOfASegment) {
  const auto launch = plan_launch(shrink_params(4096, DType::kBF16));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_EQ(launch->kernel, KernelId::kLoraShrink);
  EXPECT_EQ(launch->shape, (LaunchShape{2 * 3 * 2, 32, 256, 0}));
  const auto out = plan_launch(expand_params());
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->kernel, KernelId::kLoraExpand);
  EXPECT_EQ(out->shape, (LaunchShape{2 + 1, 32, 128, 0}));
}

TEST(LoraLaunch, TensorCoresWantHalvesAtWholeAddresses) {
  const auto kernel = [](const LoraShrinkParams& p) {
    const auto launch = plan_launch(p);
    EXPECT_TRUE(launch);
    return launch ? launch->kernel : KernelId::kEmbed;
  };
  EXPECT_EQ(kernel(shrink_params(64, DType::kF16)), KernelId::kLoraShrink);
  EXPECT_EQ(kernel(shrink_params(64, DType::kF32)), KernelId::kLoraShrinkPlain);
  EXPECT_EQ(kernel(shrink_params(63, DType::kBF16)), KernelId::kLoraShrinkPlain);
  auto p = shrink_params(64, DType::kBF16);
  p.x.strides[0] = 66;
  EXPECT_EQ(kernel(p), KernelId::kLoraShrinkPlain);
  p = shrink_params(64, DType::kBF16);
  p.x.data = lora_place + 2;
  EXPECT_EQ(kernel(p), KernelId::kLoraShrinkPlain);
  p = shrink_params(64, DType::kBF16);
  p.table.dtype = DType::kF16;
  EXPECT_EQ(kernel(p), KernelId::kLoraShrinkPlain);
}

TEST(LoraLaunch, NoSegmentsNoLaunch) {
  auto p = shrink_params(64, DType::kBF16);
  p.batch.num_segments.capacity = 0;
  const auto launch = plan_launch(p);
  ASSERT_TRUE(launch);
  EXPECT_TRUE(launch->shape.empty());
}

TEST(LoraLaunch, WrongSizesAndTypesAreRefused) {
  auto p = shrink_params(64, DType::kBF16);
  p.h.parts = 2;
  expect_lora_refused(p, ErrorCode::kInternal,
                      "lora_shrink: 2 parts of h for inputs of 64, expected 1");
  p = shrink_params(64, DType::kBF16);
  p.table.max_rank = 257;
  expect_lora_refused(p, ErrorCode::kInternal,
                      "lora_shrink: ranks of up to 257, expected 1 to 256");
  p = shrink_params(64, DType::kBF16);
  p.table.base = lora_place + 16;
  expect_lora_refused(p, ErrorCode::kInternal, "expected a multiple of 64");
  p = shrink_params(64, DType::kBF16);
  p.table.dtype = DType::kI8;
  expect_lora_refused(p, ErrorCode::kUnsupported, "lora_shrink: dtypes bf16 and int8");
  p = shrink_params(64, DType::kBF16);
  p.batch.num_segments.capacity = 65536;
  expect_lora_refused(p, ErrorCode::kUnsupported, "lora_shrink: 65536 segments, at most 65535");
  auto e = expand_params();
  e.table.num_modules = 4;
  expect_lora_refused(e, ErrorCode::kInternal, "lora_expand: 4 modules, expected 1 to 3");
  e = expand_params();
  e.widths[1] = 255;
  expect_lora_refused(e, ErrorCode::kInternal,
                      "lora_expand: the width of out is 513, expected 512");
  e = expand_params();
  e.out.dtype = DType::kBF16;
  expect_lora_refused(e, ErrorCode::kUnsupported, "lora_expand: out of dtype bf16, expected f32");
}

}  // namespace
}  // namespace sluice::cuda
