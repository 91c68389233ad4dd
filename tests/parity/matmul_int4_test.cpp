// Matrix products with weights in INT4 whose inputs are quantized: every instruction set that has
// them must compute the bits that MatmulParams defines, at every number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tensor/half.h"
#include "tensor/int4.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct Int4Shape {
  std::int64_t rows;
  std::int64_t depth;
  std::vector<std::int64_t> cols;  // of each segment
};

struct Int4Weight {
  MatmulSegment segment;
  std::vector<std::uint8_t> blocks;  // [N, K]
  std::vector<float> bias;           // [N] or none
};

class MatmulInt4Test : public DeviceTest {
 protected:
  Int4Weight put_weight(SplitMix64& rng, std::int64_t rows, std::int64_t cols,
                        bool extreme = false);
  std::vector<float> run(const std::vector<float>& x, const Int4Shape& shape,
                         const std::vector<Int4Weight>& weights);
  void check(const Int4Shape& shape, bool with_bias, SplitMix64& rng, bool extreme = false);
};

// Scales of every size that F16 has below 2, with either sign, and any codes; or the largest ones.
Int4Weight MatmulInt4Test::put_weight(SplitMix64& rng, std::int64_t rows, std::int64_t cols,
                                      bool extreme) {
  Int4Weight weight;
  weight.blocks.resize(static_cast<std::size_t>(rows * bytes_of(DType::kI4, cols)));
  for (std::size_t i = 0; i < weight.blocks.size(); ++i) {
    auto byte = static_cast<std::uint8_t>(rng.below(256));
    if (i % kInt4Bytes == 1) byte &= 0xBF;
    if (extreme) byte = i % kInt4Bytes == 0 ? 0xFF : i % kInt4Bytes == 1 ? 0x7B : 0;
    weight.blocks[i] = byte;
  }
  weight.segment.weight = matrix_view(memory_->put(weight.blocks), DType::kI4, rows, cols);
  weight.segment.weight.strides[0] = bytes_of(DType::kI4, cols) / 18 * 32;
  return weight;
}

// The product of one row of x and one of the weight.
float product_of(std::span<const float> x, const std::uint8_t* blocks) {
  float sum = 0.0F;
  for (std::size_t k = 0; k < x.size(); k += kInt4Elements, blocks += kInt4Bytes) {
    const auto block = x.subspan(k, std::min(kInt4Elements, x.size() - k));
    float largest = 0.0F;
    for (const float value : block) largest = std::max(largest, std::abs(value));
    const bool zeros = largest < MatmulParams::kSmallestInput;
    const float factor = zeros ? 0.0F : 127.0F / largest;
    int products = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const int pair = blocks[2 + i % 16];
      const int code = (i < 16 ? pair % 16 : pair / 16) - 8;
      products += code * static_cast<int>(std::nearbyint(block[i] * factor));
    }
    const auto bits = static_cast<std::uint16_t>(blocks[0] | blocks[1] << 8);
    const float scale = f16_to_float(bits) * (zeros ? 0.0F : largest / 127.0F);
    sum = std::fma(static_cast<float>(products), scale, sum);
  }
  return sum;
}

std::vector<float> MatmulInt4Test::run(const std::vector<float>& x, const Int4Shape& shape,
                                       const std::vector<Int4Weight>& weights) {
  std::vector<MatmulSegment> segments;
  for (const Int4Weight& weight : weights) segments.push_back(weight.segment);
  return multiply(memory_->put_matrix(x, shape.rows, shape.depth, DType::kBF16, shape.depth + 3),
                  segments);
}

void MatmulInt4Test::check(const Int4Shape& shape, bool with_bias, SplitMix64& rng, bool extreme) {
  memory_->clear();
  const auto count = static_cast<std::size_t>(shape.rows * shape.depth);
  auto x = round_to(DType::kBF16, random_floats(rng, count));
  if (extreme) std::fill(x.begin(), x.end(), -3.0F);
  std::vector<Int4Weight> weights;
  for (const std::int64_t n : shape.cols) {
    Int4Weight& weight = weights.emplace_back(put_weight(rng, n, shape.depth, extreme));
    if (!with_bias) continue;
    weight.bias = round_to(DType::kBF16, random_floats(rng, static_cast<std::size_t>(n)));
    weight.segment.bias = memory_->put_vector(weight.bias, DType::kBF16);
  }
  std::vector<float> want;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const auto of_row = std::span(x).subspan(static_cast<std::size_t>(row * shape.depth),
                                             static_cast<std::size_t>(shape.depth));
    for (const Int4Weight& weight : weights) {
      const std::int64_t row_bytes = bytes_of(DType::kI4, shape.depth);
      for (std::int64_t n = 0; n < weight.segment.weight.dims[0]; ++n) {
        const float product = product_of(of_row, weight.blocks.data() + n * row_bytes);
        want.push_back(with_bias ? product + weight.bias[static_cast<std::size_t>(n)] : product);
      }
    }
  }
  expect_same(run(x, shape, weights), want,
              std::to_string(shape.rows) + " rows of " + std::to_string(shape.depth));
}

TEST_P(MatmulInt4Test, HasTheDefinedBits) {
  if (device_->traits().int4_as_bf16) GTEST_SKIP() << "widens INT4: see matmul_blocks_test";
  SplitMix64 rng(1);
  for (std::int64_t rows = 1; rows <= 70; ++rows) {
    check({rows, rows % 2 == 0 ? 96 : 32 * (rows % 13) + 1 + rows % 31, {1 + rows % 37}},
          rows % 3 == 0, rng);
    if (HasFatalFailure()) return;
  }
  for (const Int4Shape& shape :
       {Int4Shape{1, 1, {1}}, Int4Shape{1, 32, {16}}, Int4Shape{1, 1056, {130, 40, 3}},
        Int4Shape{2, 8192, {33}}, Int4Shape{3, 33, {7, 2}}, Int4Shape{4, 1056, {17}},
        Int4Shape{5, 1056, {9, 12, 5}}, Int4Shape{7, 8192, {19}}, Int4Shape{16, 1056, {65}},
        Int4Shape{17, 2048, {31}}, Int4Shape{33, 1056, {48, 1}}, Int4Shape{40, 2080, {24}},
        Int4Shape{70, 96, {66}}}) {
    check(shape, shape.rows % 2 == 1, rng);
    if (HasFatalFailure()) return;
  }
}

// More rows than are packed at once, and several pieces of columns.
TEST_P(MatmulInt4Test, ManyRowsHaveTheDefinedBits) {
  if (device_->traits().int4_as_bf16) GTEST_SKIP() << "widens INT4: see matmul_blocks_test";
  if (GetParam().name == "cpu_reference") GTEST_SKIP() << "too slow";
  SplitMix64 rng(2);
  check({600, 64, {200, 90}}, true, rng);
  check({300, 4128, {40}}, false, rng);
}

// Scales and sums as large as they can be: those of 16 bits do not overflow.
TEST_P(MatmulInt4Test, TheLargestCodesDoNotOverflow) {
  if (device_->traits().int4_as_bf16) GTEST_SKIP() << "widens INT4: see matmul_blocks_test";
  SplitMix64 rng(3);
  for (const std::int64_t rows : {1, 5, 20}) {
    check({rows, MatmulParams::kMaxIntegerDepth, {2}}, false, rng, true);
  }
}

// A block with NaN or infinity makes the row's results NaN, and no other row's.
TEST_P(MatmulInt4Test, RowsOfZerosTinyAndBadNumbers) {
  if (device_->traits().int4_as_bf16) GTEST_SKIP() << "widens INT4: see matmul_blocks_test";
  SplitMix64 rng(4);
  constexpr std::int64_t kDepth = 72;
  constexpr std::int64_t kCols = 19;
  const std::vector<Int4Weight> weights = {put_weight(rng, kCols, kDepth)};
  for (const std::int64_t rows : {4, 6, 21}) {
    auto x = random_floats(rng, static_cast<std::size_t>(rows * kDepth));
    std::fill_n(x.begin() + 0 * kDepth, kDepth, 0.0F);
    std::fill_n(x.begin() + 1 * kDepth, kDepth, 1e-38F);
    x[2 * kDepth + 71] = std::numeric_limits<float>::infinity();
    x[3 * kDepth + 17] = std::numeric_limits<float>::quiet_NaN();
    const auto out = run(x, {rows, kDepth, {kCols}}, weights);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / kCols;
      EXPECT_EQ(std::isnan(out[i]), row == 2 || row == 3) << i;
      if (row < 2) {
        EXPECT_EQ(out[i], 0.0F) << i;
      }
    }
  }
}

// As in GGUF files that mix types: each segment has the bits that it has alone.
TEST_P(MatmulInt4Test, SegmentsOfOtherTypesBesideIt) {
  SplitMix64 rng(5);
  constexpr std::int64_t kDepth = 64;
  for (const std::int64_t rows : {1, 7, 40}) {
    memory_->clear();
    const Int4Shape shape{rows, kDepth, {}};
    const auto x = random_floats(rng, static_cast<std::size_t>(rows * kDepth));
    const std::vector<Int4Weight> weights = {
        put_weight(rng, 20, kDepth), {}, put_weight(rng, 5, kDepth)};
    auto mixed = weights;
    mixed[1].segment.weight =
        memory_->put_matrix(random_floats(rng, 9 * kDepth), 9, kDepth, DType::kBF16);
    const auto all = run(x, shape, mixed);
    std::size_t column = 0;
    for (const Int4Weight& weight : mixed) {
      const auto cols = static_cast<std::size_t>(weight.segment.weight.dims[0]);
      const auto alone = run(x, shape, {weight});
      std::vector<float> part;
      for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(r * 34 + column);
        part.insert(part.end(), from, from + static_cast<std::ptrdiff_t>(cols));
      }
      expect_same(part, alone, std::to_string(rows) + " rows, column " + std::to_string(column));
      column += cols;
    }
  }
}

// Large products are activated while they are in the cache.
TEST_P(MatmulInt4Test, GatedProductsHaveTheirBits) {
  SplitMix64 rng(6);
  for (const std::int64_t rows : {3, 90, 530}) {
    if (GetParam().name == "cpu_reference" && rows > 90) continue;
    memory_->clear();
    GatedMatmulParams p;
    p.gate = put_weight(rng, 150, 96).segment;
    p.up = put_weight(rng, 150, 96).segment;
    p.x = memory_->put_matrix(random_floats(rng, static_cast<std::size_t>(rows * 96)), rows, 96,
                              DType::kBF16);
    p.scratch = memory_->take_matrix(rows, 300, DType::kF32);
    p.out = memory_->take_matrix(rows, 150, DType::kBF16, 150);
    p.rows = {nullptr, static_cast<std::int32_t>(rows)};
    ops().run(p);
    const auto fused = result(p.out);
    ops().run(p.product());
    ops().run(p.activated());
    expect_same(fused, result(p.out), std::to_string(rows) + " rows");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulInt4Test, testing::ValuesIn(available_cpus()), case_name);

}  // namespace
}  // namespace sluice::parity
