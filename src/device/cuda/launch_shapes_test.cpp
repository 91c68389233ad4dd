#include "device/cuda/launch_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "device/cuda/kernel_set.h"

namespace sluice::cuda {
namespace {

int place = 0;  // somewhere to point to

TensorView matrix(std::int64_t rows, std::int64_t cols, DType dtype = DType::kF32) {
  return matrix_view(&place, dtype, rows, cols);
}
TensorView vector(std::int64_t n, DType dtype = DType::kF32) {
  return vector_view(&place, dtype, n);
}

template <class Params>
Result<LaunchShape> any_shape(const Params& p) {
  if constexpr (requires { launch_shape(p); }) {
    return launch_shape(p);
  } else {
    ASSIGN_OR_RETURN(const KernelLaunch launch, plan_launch(p));
    EXPECT_STREQ(kernel_info(launch.kernel).symbol,
                 (std::string("sluice_") + Params::kName).c_str());
    return launch.shape;
  }
}

template <class Params>
LaunchShape shape_of(const Params& p) {
  const auto shape = any_shape(p);
  EXPECT_TRUE(shape) << shape.error().message;
  return shape ? *shape : LaunchShape{};
}

template <class Params>
void expect_error(const Params& p, ErrorCode code, const char* text) {
  const auto shape = any_shape(p);
  ASSERT_FALSE(shape) << text;
  EXPECT_EQ(shape.error().code, code) << shape.error().message;
  EXPECT_THAT(shape.error().message, testing::HasSubstr(text));
}

TEST(LaunchShapes, RowOpsTakeABlockOfThreadsARow) {
  const RowCount rows{nullptr, 24};
  EXPECT_EQ(shape_of(EmbedParams{matrix(50, 8), nullptr, matrix(24, 8), rows}),
            (LaunchShape{24, 1, 256, 0}));
  EXPECT_EQ(shape_of(RmsNormParams{matrix(24, 8), {}, vector(8), matrix(24, 8), 0.0F, rows}),
            (LaunchShape{24, 1, 32, 0}))
      << "four elements a thread, whole warps";
  LayerNormParams norm{matrix(24, 8), {}, vector(8), vector(8), matrix(24, 8), 0.0F, rows};
  EXPECT_EQ(shape_of(norm), (LaunchShape{24, 1, 32, 0}));
  EXPECT_EQ(
      shape_of(RmsNormParams{matrix(24, 8192), {}, vector(8192), matrix(24, 8192), 0.0F, rows}),
      (LaunchShape{24, 1, 512, 0}))
      << "several rounds of a block";
  norm.bias = vector(7);
  expect_error(norm, ErrorCode::kInternal, "layer_norm: the length of bias is 7, expected 8");
  EXPECT_EQ(shape_of(GatedActivationParams{matrix(24, 16), matrix(24, 8), {}, rows}),
            (LaunchShape{24, 1, 256, 0}));
  EXPECT_EQ(shape_of(GatherRowsParams{matrix(9, 8), nullptr, matrix(24, 8), rows}),
            (LaunchShape{24, 1, 256, 0}));
}

TEST(LaunchShapes, SamplingTakesALargeBlockARow) {
  SampleParams p;
  p.logits = matrix(5, 128256);
  p.rows = {nullptr, 5};
  EXPECT_EQ(shape_of(p), (LaunchShape{5, 1, 512, 0}));
  p.logits.dtype = DType::kBF16;
  expect_error(p, ErrorCode::kUnsupported, "sample: logits of dtype bf16, expected f32");
  p.logits = matrix(5, 0);
  expect_error(p, ErrorCode::kInternal, "sample: a vocabulary of 0");
}

TEST(LaunchShapes, NoRowsNoLaunch) {
  const RowCount none{nullptr, 0};
  EXPECT_TRUE(shape_of(EmbedParams{matrix(50, 8), nullptr, matrix(0, 8), none}).empty());
  CopyBlocksParams copy;
  copy.block_bytes = 4096;
  EXPECT_TRUE(shape_of(copy).empty());
  MatmulParams matmul;
  matmul.x = matrix(0, 16);
  matmul.segments[0].weight = matrix(8, 16);
  matmul.num_segments = 1;
  matmul.out = matrix(0, 8);
  EXPECT_TRUE(shape_of(matmul).empty());
}

MatmulParams three_segments() {
  MatmulParams p;
  p.x = matrix(130, 16, DType::kBF16);
  p.segments[0] = {matrix(65, 16, DType::kBF16), vector(65, DType::kBF16)};
  p.segments[1] = {matrix(64, 16, DType::kBF16), {}};
  p.segments[2] = {matrix(1, 16, DType::kBF16), {}};
  p.num_segments = 3;
  p.out = matrix(130, 130);
  p.rows = {nullptr, 130};
  return p;
}

TEST(LaunchShapes, MatmulTilesEachSegmentByItself) {
  EXPECT_EQ(shape_of(three_segments()), (LaunchShape{2 + 1 + 1, 3, 256, 0}));
}

TEST(LaunchShapes, MatmulRefusesWhatDoesNotFit) {
  MatmulParams p = three_segments();
  p.out = matrix(130, 131);
  expect_error(p, ErrorCode::kInternal, "the width of out is 131, expected 130");
  p = three_segments();
  p.segments[1].weight = matrix(64, 17, DType::kBF16);
  expect_error(p, ErrorCode::kInternal, "the depth of a weight is 17, expected 16");
  p = three_segments();
  p.segments[0].bias = vector(64);
  expect_error(p, ErrorCode::kInternal, "the length of a bias");
  p = three_segments();
  p.segments[0].weight.dtype = DType::kI8;
  expect_error(p, ErrorCode::kUnsupported, "dtype int8");
  p = three_segments();
  p.num_segments = 4;
  expect_error(p, ErrorCode::kInternal, "4 segments");
  p = three_segments();
  p.rows.capacity = 65536 * 64;
  expect_error(p, ErrorCode::kUnsupported, "at most 2147483647 x 65535");
}

TEST(LaunchShapes, GatedMatmulTakesTwoWeightsOfOneShape) {
  GatedMatmulParams p;
  p.x = matrix(130, 16, DType::kBF16);
  p.gate.weight = matrix(65, 16, DType::kBF16);
  p.up.weight = matrix(65, 16, DType::kBF16);
  p.scratch = matrix(130, 130);
  p.out = matrix(130, 65);
  p.rows = {nullptr, 130};
  EXPECT_EQ(shape_of(p), (LaunchShape{3, 3, 256, 0})) << "32 columns of out a block";
  p.up.weight = matrix(64, 16, DType::kBF16);
  p.scratch = matrix(130, 129);
  expect_error(p, ErrorCode::kInternal, "the width of gate_up is 129, expected 130");
  p.gate.weight = matrix(66, 16, DType::kBF16);
  p.scratch = matrix(130, 130);
  expect_error(p, ErrorCode::kInternal, "the width of up is 64, expected 66");
}

RopeWriteKvParams rope() {
  RopeWriteKvParams p;
  p.qkv = matrix(7, std::int64_t{8 + 2 * 2} * 128);
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_dim = 128;
  p.rotary_dim = 64;
  p.rows = {nullptr, 7};
  return p;
}

TEST(LaunchShapes, RopeTakesEveryHead) {
  EXPECT_EQ(shape_of(rope()), (LaunchShape{7, 12, 128, 0}));
  RopeWriteKvParams p = rope();
  p.rotary_dim = 63;
  expect_error(p, ErrorCode::kInternal, "rotary_dim 63");
  p = rope();
  p.k_norm = vector(64);
  expect_error(p, ErrorCode::kInternal, "the length of a norm is 64, expected 128");
  p = rope();
  p.qkv = matrix(7, 100);
  expect_error(p, ErrorCode::kInternal, "the width of qkv is 100, expected 1536");
}

AttentionParams attention() {
  AttentionParams p;
  p.q = matrix(9, 8 * 64 + 32);
  p.out = matrix(9, 8 * 64);
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_dim = 64;
  p.seqs = {nullptr, 3};
  return p;
}

TEST(LaunchShapes, AttentionTakesAWarpForEachTokenAndHead) {
  EXPECT_EQ(shape_of(attention()), (LaunchShape{9, 8, 32, 0}));
  AttentionParams p = attention();
  p.num_kv_heads = 3;
  expect_error(p, ErrorCode::kInternal, "8 heads over 3 KV heads");
  p = attention();
  p.head_dim = 512;
  expect_error(p, ErrorCode::kUnsupported, "head_dim 512, this backend takes 1 to 256");
  p = attention();
  p.kv.dtype = DType::kU8;
  expect_error(p, ErrorCode::kUnsupported, "dtype u8");
  p = attention();
  p.q = matrix(8, 8 * 64);
  expect_error(p, ErrorCode::kInternal, "q of 8 x 512, out of 9 x 512");
}

TEST(LaunchShapes, CopiesTakeTheBytesOfABlockWhateverThePairs) {
  CopyBlocksParams p;
  p.rows = {nullptr, 1000};
  p.block_bytes = 4096;
  EXPECT_EQ(shape_of(p), (LaunchShape{1, 1, 256, 0}));
  p.block_bytes = 4097;
  EXPECT_EQ(shape_of(p), (LaunchShape{2, 1, 256, 0}));
}

}  // namespace
}  // namespace sluice::cuda
