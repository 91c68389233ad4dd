// Matrix products with weights in FP8 and scales of every form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tensor/float8.h"
#include "tests/parity/expected_products.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct Fp8Shape {
  std::int64_t rows;
  std::int64_t depth;
  std::vector<std::int64_t> cols;  // of each segment
  std::int32_t block_rows;         // 0: all
  std::int32_t block_cols;
};

std::string describe(const Fp8Shape& shape, DType x) {
  std::string text = std::string(dtype_name(x)) + " x fp8, " + std::to_string(shape.rows) + " x " +
                     std::to_string(shape.depth) + " x";
  for (const std::int64_t n : shape.cols) text += " " + std::to_string(n);
  return text + ", blocks of " + std::to_string(shape.block_rows) + " x " +
         std::to_string(shape.block_cols);
}

// A segment on the device, and what its weight counts.
struct Fp8Weight {
  MatmulSegment segment;
  std::vector<double> values;  // [N, K]
};

class MatmulFp8Test : public DeviceTest {
 protected:
  Fp8Weight put_weight(SplitMix64& rng, std::int64_t rows, std::int64_t cols,
                       const Fp8Shape& shape);
  void check(const Fp8Shape& shape, DType x_type, bool with_bias, SplitMix64& rng);
};

Fp8Weight MatmulFp8Test::put_weight(SplitMix64& rng, std::int64_t rows, std::int64_t cols,
                                    const Fp8Shape& shape) {
  const std::int64_t block_rows = shape.block_rows == 0 ? rows : shape.block_rows;
  const std::int64_t block_cols = shape.block_cols == 0 ? cols : shape.block_cols;
  const std::int64_t across = (cols + block_cols - 1) / block_cols;
  const std::int64_t down = (rows + block_rows - 1) / block_rows;
  // The scales differ greatly in size, so that using a neighbour's scale shows.
  std::vector<float> scales(static_cast<std::size_t>(across * down));
  for (float& scale : scales) scale = static_cast<float>(std::exp2(8 * rng.uniform() - 12));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
  for (std::uint8_t& code : codes) {
    code = static_cast<std::uint8_t>(rng.below(2) * 0x80 + rng.below(0x7F));
  }
  Fp8Weight weight;
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const float code = e4m3_to_float(codes[static_cast<std::size_t>(n * cols + k)]);
      const float scale =
          scales[static_cast<std::size_t>(n / block_rows * across + k / block_cols)];
      weight.values.push_back(device_->traits().fp8_as_bf16
                                  ? bf16_to_float(float_to_bf16(code * scale))
                                  : static_cast<double>(code) * scale);
    }
  }
  weight.segment.weight = matrix_view(memory_->put(codes), DType::kF8E4M3, rows, cols);
  weight.segment.scales = {memory_->put(scales), static_cast<std::int32_t>(block_rows),
                           static_cast<std::int32_t>(block_cols), across};
  return weight;
}

void MatmulFp8Test::check(const Fp8Shape& shape, DType x_type, bool with_bias, SplitMix64& rng) {
  memory_->clear();
  const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  std::int64_t total_cols = 0;
  for (const std::int64_t n : shape.cols) total_cols += n;
  const auto x = round_to(x_type, random_floats(rng, count(shape.rows, shape.depth)));
  MatmulParams p;
  p.x = memory_->put_matrix(x, shape.rows, shape.depth, x_type, (shape.depth + 15) / 8 * 8);
  p.out = memory_->take_matrix(shape.rows, total_cols, DType::kF32);
  p.rows = {memory_->put_count(static_cast<std::int32_t>(shape.rows)),
            static_cast<std::int32_t>(shape.rows) + 1};
  Sums want;
  want.width = static_cast<std::size_t>(total_cols);
  std::int64_t column = 0;
  for (const std::int64_t n : shape.cols) {
    Fp8Weight weight = put_weight(rng, n, shape.depth, shape);
    auto bias = round_to(DType::kBF16, random_floats(rng, static_cast<std::size_t>(n)));
    if (with_bias) weight.segment.bias = memory_->put_vector(bias, DType::kBF16);
    if (!with_bias) bias.clear();
    p.segments[p.num_segments++] = weight.segment;
    put_columns(
        expected_products<double>(x, weight.values, bias, static_cast<std::size_t>(shape.depth)),
        static_cast<std::size_t>(column), want);
    column += n;
  }
  ops().run(p);
  expect_close(result(p.out), want.values, want.tolerance, describe(shape, x_type));
}

TEST_P(MatmulFp8Test, EveryFormOfScales) {
  SplitMix64 rng(1);
  const std::pair<std::int32_t, std::int32_t> blocks[] = {{128, 128}, {0, 0},    {1, 0},
                                                          {16, 64},   {64, 192}, {3, 5}};
  for (const DType others : {DType::kBF16, DType::kF16, DType::kF32}) {
    const DType x = device_->traits().matmul_input_dtype(DType::kF8E4M3, others);
    for (const auto& [block_rows, block_cols] : blocks) {
      check({1, 320, {130, 40}, block_rows, block_cols}, x, false, rng);
      check({7, 64, {33}, block_rows, block_cols}, x, true, rng);
      check({15, 400, {16, 129, 5}, block_rows, block_cols}, x, true, rng);
      check({19, 272, {140}, block_rows, block_cols}, x, false, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(MatmulFp8Test, OddShapesAndManyRows) {
  SplitMix64 rng(2);
  for (const DType others : {DType::kBF16, DType::kF16}) {
    const DType x = device_->traits().matmul_input_dtype(DType::kF8E4M3, others);
    for (const Fp8Shape& shape :
         {Fp8Shape{3, 1, {1}, 128, 128}, Fp8Shape{5, 33, {7, 2}, 128, 128},
          Fp8Shape{2, 200, {9}, 128, 128}, Fp8Shape{4, 40, {70}, 8, 16},
          Fp8Shape{130, 144, {66, 70}, 128, 128}, Fp8Shape{200, 256, {64}, 128, 128}}) {
      check(shape, x, shape.rows % 2 == 1, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// More elements along K than a piece's scratch memory has room for.
TEST_P(MatmulFp8Test, DeepRows) {
  if (GetParam().name.starts_with("cuda")) GTEST_SKIP() << "has no limit, and is slow if emulated";
  SplitMix64 rng(6);
  const DType x = device_->traits().matmul_input_dtype(DType::kF8E4M3, DType::kBF16);
  for (const std::int32_t block : {0, 1}) {
    check({6, MatmulParams::kMaxIntegerDepth + 40, {7}, block, 0}, x, block == 1, rng);
  }
}

// One launch for gate and up gives the same as two ops.
TEST_P(MatmulFp8Test, GatedProducts) {
  SplitMix64 rng(5);
  for (const DType others : {DType::kBF16, DType::kF16}) {
    const DType type = device_->traits().matmul_input_dtype(DType::kF8E4M3, others);
    for (const std::int64_t rows : {3, 14, 21, 130}) {
      for (const std::int32_t block : {128, 16}) {  // 16: no fast kernel
        memory_->clear();
        constexpr std::int64_t kDepth = 272;
        constexpr std::int64_t kWidth = 70;
        const Fp8Shape scales = {rows, kDepth, {}, block, block};
        GatedMatmulParams p;
        p.x = memory_->put_matrix(random_floats(rng, static_cast<std::size_t>(rows * kDepth)), rows,
                                  kDepth, type);
        p.gate = put_weight(rng, kWidth, kDepth, scales).segment;
        p.up = put_weight(rng, kWidth, kDepth, scales).segment;
        p.scratch = memory_->take_matrix(rows, 2 * kWidth, DType::kF32);
        p.out = memory_->take_matrix(rows, kWidth, DType::kBF16);
        p.rows = {nullptr, static_cast<std::int32_t>(rows)};
        check_gated_bits(p, describe(scales, type));
      }
    }
  }
}

// Alone, among others, in another place, and with room for more.
TEST_P(MatmulFp8Test, RowsAreTheSameInAnyPlace) {
  auto exact = GetParam().make(2, true);
  ASSERT_TRUE(exact);
  memory_.reset();
  device_ = *std::move(exact);
  memory_ = std::make_unique<DeviceMemory>(*device_);
  SplitMix64 rng(3);
  constexpr std::int64_t kDepth = 384;
  constexpr std::int64_t kCols = 40;
  const Fp8Weight weight = put_weight(rng, kCols, kDepth, {0, kDepth, {kCols}, 16, 128});
  const DType type = device_->traits().matmul_input_dtype(DType::kF8E4M3, DType::kBF16);
  const auto x = random_floats(rng, 24 * kDepth);
  const auto run = [&](std::int64_t first, std::int64_t rows, std::int32_t capacity) {
    const std::vector<float> part(x.begin() + first * kDepth, x.begin() + (first + rows) * kDepth);
    MatmulParams p;
    p.x = memory_->put_matrix(part, rows, kDepth, type);
    p.segments[0] = weight.segment;
    p.num_segments = 1;
    p.out = memory_->take_matrix(rows, kCols, DType::kF32);
    p.rows = {memory_->put_count(static_cast<std::int32_t>(rows)), capacity};
    ops().run(p);
    return result(p.out);
  };
  const auto want = run(0, 24, 24);
  const auto rows_of = [&](std::int64_t first, std::int64_t rows) {
    return std::vector<float>(want.begin() + first * kCols, want.begin() + (first + rows) * kCols);
  };
  for (const std::int32_t capacity : {1, 9, 40, 100}) {
    expect_same(run(5, 1, capacity), rows_of(5, 1), "capacity " + std::to_string(capacity));
  }
  expect_same(run(3, 7, 16), rows_of(3, 7), "7 rows of 16");
  expect_same(run(8, 16, 16), rows_of(8, 16), "16 rows");
}

// Rows have the bits of the same rows alone, over more than one pass along K and one part of rows.
TEST_P(MatmulFp8Test, ManyRowsHaveTheBitsOfOne) {
  if (GetParam().name.starts_with("cuda")) GTEST_SKIP() << "the order depends on the rows there";
  if (GetParam().name == "cpu_reference") GTEST_SKIP() << "too slow, and row by row anyway";
  SplitMix64 rng(4);
  constexpr std::int64_t kCols = 200;
  constexpr std::int64_t kRows = 261;
  const DType type = device_->traits().matmul_input_dtype(DType::kF8E4M3, DType::kBF16);
  struct Case {
    std::int64_t depth;
    std::int32_t block_rows;
    std::int32_t block_cols;
  };
  // Up to 2,048 elements, weights are widened to F32 where products run in F32.
  for (const auto& [depth, block_rows, block_cols] :
       {Case{2090, 128, 128}, Case{2090, 40, 256}, Case{2090, 0, 0}, Case{2090, 1, 0},
        Case{2090, 7, 50}, Case{2090, 3, 32}, Case{1090, 128, 128}, Case{1090, 7, 50}}) {
    memory_->clear();
    const Fp8Weight weight =
        put_weight(rng, kCols, depth, {0, depth, {kCols}, block_rows, block_cols});
    const auto x = random_floats(rng, kRows * depth);
    const auto run = [&](std::int64_t first, std::int32_t rows) {
      MatmulParams p;
      p.x = memory_->put_matrix({x.begin() + first * depth, x.begin() + (first + rows) * depth},
                                rows, depth, type);
      p.segments[0] = weight.segment;
      p.num_segments = 1;
      p.out = memory_->take_matrix(rows, kCols, DType::kF32);
      p.rows = {nullptr, rows};
      ops().run(p);
      return result(p.out);
    };
    const auto all = run(0, kRows);
    for (const auto& [first, rows] : std::initializer_list<std::pair<std::int64_t, std::int32_t>>{
             {0, 1}, {3, 6}, {40, 2}, {50, 3}, {60, 4}, {100, 33}, {260, 1}}) {
      expect_same(run(first, rows),
                  std::span(all).subspan(static_cast<std::size_t>(first * kCols),
                                         static_cast<std::size_t>(rows * kCols)),
                  std::to_string(rows) + " rows from " + std::to_string(first) + ", blocks of " +
                      std::to_string(block_cols));
    }
  }
}

// On the CPU, weights are mapped from files without a check. On other devices the copy refuses NaN.
class MatmulFp8NanTest : public MatmulFp8Test {};
TEST_P(MatmulFp8NanTest, StaysInItsColumn) {
  SplitMix64 rng(4);
  Fp8Weight weight = put_weight(rng, 9, 70, {0, 70, {9}, 128, 128});
  const std::uint8_t nan = 0xFF;
  memory_->upload(weight.segment.weight.as<std::uint8_t>() + 4 * 70 + 69,
                  std::as_bytes(std::span(&nan, 1)));
  MatmulParams p;
  p.x = memory_->put_matrix(random_floats(rng, 5 * 70), 5, 70, DType::kF32);
  p.segments[0] = weight.segment;
  p.num_segments = 1;
  p.out = memory_->take_matrix(5, 9, DType::kF32);
  p.rows = {nullptr, 5};
  ops().run(p);
  const auto out = result(p.out);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i % 9 == 4) << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulFp8Test, testing::ValuesIn(available_devices()), case_name);
INSTANTIATE_TEST_SUITE_P(Devices, MatmulFp8NanTest, testing::ValuesIn(available_cpus()), case_name);

}  // namespace
}  // namespace sluice::parity
