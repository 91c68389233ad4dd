// Matrix products with weights in blocks: every instruction set must compute the bits that
// MatmulParams defines, at every number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tensor/gguf_blocks.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct QuantizedWeight {
  MatmulSegment segment;
  std::vector<std::uint8_t> blocks;  // [N, K]
  std::vector<float> bias;           // [N] or none
};

enum class Numbers { kRandom, kLargest };

class MatmulQuantizedTest : public DeviceTest {
 protected:
  QuantizedWeight put_weight(SplitMix64& rng, DType dtype, std::int64_t rows, std::int64_t cols,
                             Numbers numbers = Numbers::kRandom);
  std::vector<float> run(const std::vector<float>& x, const MatmulShape& shape,
                         const std::vector<QuantizedWeight>& weights);
  void check(DType dtype, const MatmulShape& shape, bool with_bias, SplitMix64& rng,
             Numbers numbers = Numbers::kRandom);
};

// Whole blocks: files have no rows that end within one of 256.
std::int64_t depth_of(DType dtype, std::int64_t depth) {
  if (block_of(dtype).elements != 256) return depth;
  return (depth + 255) / 256 * 256;
}

// Scales of every size that F16 has below 2, with either sign, and any codes; or the codes of the
// largest magnitude.
QuantizedWeight MatmulQuantizedTest::put_weight(SplitMix64& rng, DType dtype, std::int64_t rows,
                                                std::int64_t cols, Numbers numbers) {
  const ElementBlock block = block_of(dtype);
  QuantizedWeight weight;
  weight.blocks.resize(static_cast<std::size_t>(rows * bytes_of(dtype, cols)));
  for (std::uint8_t& byte : weight.blocks) {
    byte = static_cast<std::uint8_t>(rng.below(256));
    if (numbers == Numbers::kLargest) byte = dtype == DType::kQ8_0 ? 0x80 : 0xFF;
  }
  for (std::size_t at = 0; at < weight.blocks.size(); at += static_cast<std::size_t>(block.bytes)) {
    std::uint8_t* const bytes = weight.blocks.data() + at;
    const bool largest = numbers == Numbers::kLargest;
    const auto limit = [&](std::size_t place) {
      bytes[place + 1] = largest ? 0x3B : static_cast<std::uint8_t>(bytes[place + 1] & 0xBF);
    };
    if (dtype == DType::kU4G128 || dtype == DType::kU8G128) {
      const auto scale = static_cast<float>(rng.uniform() - 0.5);
      std::memcpy(bytes, &scale, sizeof(scale));
      if (dtype == DType::kU4G128) bytes[4] &= 15;
      if (largest) bytes[4] = 0;
    } else if (dtype == DType::kQ6K) {
      limit(208);
      // Codes of -32 and runs of -128.
      if (largest) {
        std::fill_n(bytes, 192, std::uint8_t{0});
        std::fill_n(bytes + 192, 16, std::uint8_t{0x80});
      }
    } else if (dtype == DType::kQ2K) {
      limit(80);
      limit(82);
    } else if (dtype == DType::kQ3K) {
      limit(108);
      // Codes of -4 and scales of -32.
      if (largest) std::fill_n(bytes, 108, std::uint8_t{0});
    } else {
      limit(0);
      if (has_minimum(dtype)) limit(2);
      // Codes that name -127.
      if (dtype == DType::kIq4Nl && largest) std::fill_n(bytes + 2, 16, std::uint8_t{0});
      if (dtype == DType::kIq4Xs && largest) std::fill_n(bytes + 2, 134, std::uint8_t{0});
      if (dtype == DType::kU4G32) bytes[2] &= 15;
      if (dtype == DType::kU4G32 && largest) {
        std::fill_n(bytes + 3, 16, std::uint8_t{0});
        bytes[2] = 15;
      }
      if (dtype == DType::kI4 && largest) std::fill_n(bytes + 2, 16, std::uint8_t{0});
    }
  }
  weight.segment.weight = matrix_view(memory_->put(weight.blocks), dtype, rows, cols);
  weight.segment.weight.strides[0] = bytes_of(dtype, cols) / block.bytes * block.elements;
  return weight;
}

// 32 elements of a row of x, as MatmulParams defines their codes.
struct InputLine {
  std::array<int, 32> codes{};
  std::array<int, 2> run_sums{};  // of 16 codes each
  float scale = 0.0F;
};

std::vector<InputLine> input_lines(std::span<const float> x) {
  std::vector<InputLine> lines;
  for (std::size_t k = 0; k < x.size(); k += 32) {
    const auto elements = x.subspan(k, std::min<std::size_t>(32, x.size() - k));
    float largest = 0.0F;
    for (const float value : elements) largest = std::max(largest, std::abs(value));
    const bool zeros = largest < MatmulParams::kSmallestInput;
    const float factor = zeros ? 0.0F : 127.0F / largest;
    InputLine& line = lines.emplace_back();
    line.scale = zeros ? 0.0F : largest / 127.0F;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      line.codes[i] = static_cast<int>(std::nearbyint(elements[i] * factor));
      line.run_sums[i / 16] += line.codes[i];
    }
  }
  return lines;
}

std::vector<BlockLine> weight_lines(DType dtype, const std::uint8_t* blocks, std::size_t count) {
  std::vector<BlockLine> lines;
  for (std::size_t i = 0; i < count; ++i) {
    lines.push_back(block_line(dtype, blocks, static_cast<std::int64_t>(i)));
  }
  return lines;
}

// The product of one row of x and one of the weight. Plain pointers: the address sanitizer's build
// is not optimized.
float product_of(std::span<const InputLine> x, std::span<const BlockLine> weight, bool minimum) {
  float sum = 0.0F;
  for (std::size_t line = 0; line < x.size(); ++line) {
    const InputLine& of_x = x[line];
    const BlockLine& of_weight = weight[line];
    const int* const x_codes = of_x.codes.data();
    const int* const weight_codes = of_weight.codes.data();
    int products = 0;
    for (int i = 0; i < 32; ++i) products += weight_codes[i] * x_codes[i];
    sum = std::fma(static_cast<float>(products), of_weight.scale * of_x.scale, sum);
    if (!minimum) continue;
    const int codes =
        of_x.run_sums[0] * of_weight.minimum_runs[0] + of_x.run_sums[1] * of_weight.minimum_runs[1];
    sum = std::fma(-of_weight.minimum, of_x.scale * static_cast<float>(codes), sum);
  }
  return sum;
}

std::vector<float> MatmulQuantizedTest::run(const std::vector<float>& x, const MatmulShape& shape,
                                            const std::vector<QuantizedWeight>& weights) {
  std::vector<MatmulSegment> segments;
  for (const QuantizedWeight& weight : weights) segments.push_back(weight.segment);
  return multiply(memory_->put_matrix(x, shape.rows, shape.depth, DType::kBF16, shape.depth + 3),
                  segments);
}

void MatmulQuantizedTest::check(DType dtype, const MatmulShape& shape, bool with_bias,
                                SplitMix64& rng, Numbers numbers) {
  memory_->clear();
  const auto count = static_cast<std::size_t>(shape.rows * shape.depth);
  auto x = round_to(DType::kBF16, random_floats(rng, count));
  if (numbers == Numbers::kLargest) std::fill(x.begin(), x.end(), -3.0F);
  std::vector<QuantizedWeight> weights;
  for (const std::int64_t n : shape.cols) {
    QuantizedWeight& weight = weights.emplace_back(put_weight(rng, dtype, n, shape.depth, numbers));
    if (!with_bias) continue;
    weight.bias = round_to(DType::kBF16, random_floats(rng, static_cast<std::size_t>(n)));
    weight.segment.bias = memory_->put_vector(weight.bias, DType::kBF16);
  }
  struct Column {
    std::vector<BlockLine> lines;
    float bias;
  };
  const auto depth = static_cast<std::size_t>(shape.depth);
  std::vector<Column> columns;
  for (const QuantizedWeight& weight : weights) {
    for (std::int64_t n = 0; n < weight.segment.weight.dims[0]; ++n) {
      const std::uint8_t* const row = weight.blocks.data() + n * bytes_of(dtype, shape.depth);
      columns.push_back({weight_lines(dtype, row, (depth + 31) / 32),
                         with_bias ? weight.bias[static_cast<std::size_t>(n)] : 0.0F});
    }
  }
  std::vector<float> want;
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    const std::vector<InputLine> lines = input_lines(std::span(x).subspan(row * depth, depth));
    for (const Column& column : columns) {
      const float product = product_of(lines, column.lines, has_minimum(dtype));
      want.push_back(with_bias ? product + column.bias : product);
    }
  }
  expect_same(run(x, shape, weights), want,
              std::to_string(shape.rows) + " rows of " + std::to_string(shape.depth) + " in " +
                  dtype_name(dtype));
}

TEST_P(MatmulQuantizedTest, HasTheDefinedBits) {
  SplitMix64 rng(1);
  for (const DType dtype : kBlockDTypes) {
    for (std::int64_t rows = 1; rows <= 70; rows += rows < 36 ? 1 : 7) {
      const std::int64_t depth = rows % 2 == 0 ? 96 : 32 * (rows % 13) + 1 + rows % 31;
      check(dtype, {rows, depth_of(dtype, depth), {1 + rows % 37}}, rows % 3 == 0, rng);
      if (HasFatalFailure()) return;
    }
    for (const MatmulShape& shape :
         {MatmulShape{1, 1, {1}}, MatmulShape{1, 32, {16}}, MatmulShape{1, 1056, {130, 40, 3}},
          MatmulShape{2, 4096, {33}}, MatmulShape{3, 33, {7, 2}}, MatmulShape{4, 1056, {17}},
          MatmulShape{5, 1056, {9, 12, 5}}, MatmulShape{7, 4096, {19}}, MatmulShape{16, 1056, {65}},
          MatmulShape{33, 544, {48, 1}}, MatmulShape{40, 2080, {24}}}) {
      check(dtype, {shape.rows, depth_of(dtype, shape.depth), shape.cols}, shape.rows % 2 == 1,
            rng);
      if (HasFatalFailure()) return;
    }
  }
}

// More rows than are packed at once, and several pieces of columns.
TEST_P(MatmulQuantizedTest, ManyRowsHaveTheDefinedBits) {
  if (GetParam().name == "cpu_reference") GTEST_SKIP() << "too slow";
  SplitMix64 rng(2);
  for (const DType dtype : kBlockDTypes) {
    check(dtype, {600, depth_of(dtype, 64), {70, 35}}, true, rng);
    check(dtype, {300, depth_of(dtype, 2080), {20}}, false, rng);
    if (HasFatalFailure()) return;
  }
}

// Codes and sums as large as they can be: those of 16 bits do not overflow.
TEST_P(MatmulQuantizedTest, TheLargestCodesDoNotOverflow) {
  SplitMix64 rng(3);
  for (const DType dtype : kBlockDTypes) {
    for (const std::int64_t rows : {1, 5, 20}) {
      check(dtype, {rows, MatmulParams::kMaxIntegerDepth, {2}}, false, rng, Numbers::kLargest);
      if (HasFatalFailure()) return;
    }
    check(dtype, {3, 512, {21}}, false, rng, Numbers::kLargest);
  }
}

// A block with NaN or infinity makes the row's results NaN, and no other row's.
TEST_P(MatmulQuantizedTest, RowsOfZerosTinyAndBadNumbers) {
  SplitMix64 rng(4);
  constexpr std::int64_t kCols = 19;
  for (const DType dtype : kBlockDTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const std::int64_t depth = depth_of(dtype, 72);
    const std::vector<QuantizedWeight> weights = {put_weight(rng, dtype, kCols, depth)};
    for (const std::int64_t rows : {4, 6, 21}) {
      auto x = random_floats(rng, static_cast<std::size_t>(rows * depth));
      std::fill_n(x.begin(), depth, 0.0F);
      std::fill_n(x.begin() + depth, depth, 1e-38F);
      x[static_cast<std::size_t>(3 * depth - 1)] = std::numeric_limits<float>::infinity();
      x[static_cast<std::size_t>(3 * depth + 17)] = std::numeric_limits<float>::quiet_NaN();
      const auto out = run(x, {rows, depth, {kCols}}, weights);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t row = i / kCols;
        EXPECT_EQ(std::isnan(out[i]), row == 2 || row == 3) << i;
        if (row < 2) {
          EXPECT_EQ(out[i], 0.0F) << i;
        }
      }
    }
  }
}

// A row's bits depend neither on the rows beside it nor on the columns that an op has.
TEST_P(MatmulQuantizedTest, RowsHaveTheBitsThatTheyHaveAlone) {
  SplitMix64 rng(7);
  constexpr std::int64_t kCols = 75;
  for (const DType dtype : kBlockDTypes) {
    const std::int64_t depth = depth_of(dtype, 1100);
    for (const std::int64_t rows : {2, 3, 5, 7, 9, 14, 16, 19, 37}) {
      if (GetParam().name == "cpu_reference" && rows > 3) continue;
      memory_->clear();
      const QuantizedWeight weight = put_weight(rng, dtype, kCols, depth);
      const TensorView x = memory_->put_matrix(
          random_floats(rng, static_cast<std::size_t>(rows * depth)), rows, depth, DType::kBF16);
      const auto all = multiply(x, {weight.segment});
      for (std::int64_t row = 0; row < rows; row += 1 + rows / 4) {
        TensorView one = x;
        one.data = x.as<std::uint16_t>() + row * depth;
        one.dims[0] = 1;
        expect_same(multiply(one, {weight.segment}),
                    std::span(all).subspan(static_cast<std::size_t>(row * kCols), kCols),
                    std::string(dtype_name(dtype)) + ", row " + std::to_string(row) + " of " +
                        std::to_string(rows));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// As in GGUF files that mix types: each segment has the bits that it has alone.
TEST_P(MatmulQuantizedTest, SegmentsOfOtherTypesBesideIt) {
  SplitMix64 rng(5);
  constexpr std::int64_t kDepth = 256;
  for (const std::int64_t rows : {1, 7, 40}) {
    for (const bool with_bf16 : {false, true}) {
      memory_->clear();
      const MatmulShape shape{rows, kDepth, {}};
      const auto x = random_floats(rng, static_cast<std::size_t>(rows * kDepth));
      std::vector<QuantizedWeight> mixed = {put_weight(rng, DType::kQ4K, 20, kDepth),
                                            put_weight(rng, DType::kQ6K, 9, kDepth),
                                            put_weight(rng, DType::kI4, 5, kDepth)};
      if (with_bf16) {
        mixed[1].segment.weight =
            memory_->put_matrix(random_floats(rng, 9 * kDepth), 9, kDepth, DType::kBF16);
      }
      const auto all = run(x, shape, mixed);
      std::size_t column = 0;
      for (const QuantizedWeight& weight : mixed) {
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
}

// The products of x whose columns were put into that order before.
TEST_P(MatmulQuantizedTest, ColumnsInAnotherOrder) {
  SplitMix64 rng(8);
  constexpr std::int64_t kDepth = 512;
  std::vector<std::int32_t> order(kDepth);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t k = order.size() - 1; k > 0; --k) std::swap(order[k], order[rng.below(k)]);
  std::vector<std::int32_t> other = order;
  std::rotate(other.begin(), other.begin() + 100, other.end());
  for (const DType dtype : {DType::kU4G128, DType::kU4G32, DType::kI4, DType::kQ8_0}) {
    for (const std::int64_t rows : {1, 7, 40}) {
      memory_->clear();
      const MatmulShape shape{rows, kDepth, {}};
      const auto x = random_floats(rng, static_cast<std::size_t>(rows * kDepth));
      const auto in = [&](const std::vector<std::int32_t>& columns) {
        std::vector<float> ordered;
        for (std::int64_t i = 0; i < rows * kDepth; ++i) {
          const std::int64_t column = columns[static_cast<std::size_t>(i % kDepth)];
          ordered.push_back(x[static_cast<std::size_t>(i / kDepth * kDepth + column)]);
        }
        return ordered;
      };
      const auto expect_order = [&](const std::vector<QuantizedWeight>& weights,
                                    const std::vector<std::vector<std::int32_t>>& orders) {
        std::vector<QuantizedWeight> ordered = weights;
        for (std::size_t s = 0; s < weights.size(); ++s) {
          ordered[s].segment.order = orders[s].empty() ? nullptr : memory_->put(orders[s]);
        }
        const auto all = run(x, shape, ordered);
        std::vector<std::vector<float>> alone;
        for (std::size_t s = 0; s < weights.size(); ++s) {
          alone.push_back(run(orders[s].empty() ? x : in(orders[s]), shape, {weights[s]}));
        }
        std::vector<float> want;
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
          for (const std::vector<float>& part : alone) {
            const auto width = static_cast<std::ptrdiff_t>(part.size()) / rows;
            const auto from = part.begin() + static_cast<std::ptrdiff_t>(row) * width;
            want.insert(want.end(), from, from + width);
          }
        }
        expect_same(all, want, std::to_string(rows) + " rows in " + dtype_name(dtype));
      };
      const auto first = put_weight(rng, dtype, 20, kDepth);
      const auto second = put_weight(rng, dtype, 9, kDepth);
      expect_order({first}, {order});
      expect_order({first, second}, {other, other});
      expect_order({first, second}, {order, other});
      expect_order({first, second}, {{}, other});
    }
  }
}

// Large products are activated while they are in the cache.
TEST_P(MatmulQuantizedTest, GatedProductsHaveTheirBits) {
  SplitMix64 rng(6);
  for (const DType dtype : kBlockDTypes) {
    const std::int64_t depth = depth_of(dtype, 96);
    for (const std::int64_t rows : {3, 90, 517}) {
      if (GetParam().name == "cpu_reference" && rows > 3) continue;
      memory_->clear();
      GatedMatmulParams p;
      p.gate = put_weight(rng, dtype, 150, depth).segment;
      p.up = put_weight(rng, dtype, 150, depth).segment;
      p.x = memory_->put_matrix(random_floats(rng, static_cast<std::size_t>(rows * depth)), rows,
                                depth, DType::kBF16);
      p.scratch = memory_->take_matrix(rows, 300, DType::kF32);
      p.out = memory_->take_matrix(rows, 150, DType::kBF16, 150);
      p.rows = {nullptr, static_cast<std::int32_t>(rows)};
      check_gated_bits(p, std::to_string(rows) + " rows, " + dtype_name(dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulQuantizedTest, testing::ValuesIn(available_cpus()),
                         case_name);

}  // namespace
}  // namespace sluice::parity
