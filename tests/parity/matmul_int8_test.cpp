// Matrix products with weights in INT8, and embeddings in INT8. Sums are exact, so every
// instruction set must compute the bits that MatmulSegment defines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct Int8Weight {
  MatmulSegment segment;
  std::vector<std::int8_t> codes;  // [N, K]
  std::vector<float> scales;       // [N]
  std::vector<float> bias;         // [N] or none
};

class MatmulInt8Test : public DeviceTest {
 protected:
  Int8Weight put_weight(SplitMix64& rng, std::int64_t rows, std::int64_t cols, bool extreme);
  std::vector<float> run(const std::vector<float>& x, DType x_type, const MatmulShape& shape,
                         const std::vector<Int8Weight>& weights);
  void check(const MatmulShape& shape, DType x_type, bool with_bias, SplitMix64& rng,
             bool extreme = false);
};

Int8Weight MatmulInt8Test::put_weight(SplitMix64& rng, std::int64_t rows, std::int64_t cols,
                                      bool extreme) {
  Int8Weight weight;
  weight.codes.resize(static_cast<std::size_t>(rows * cols), 127);
  for (std::int8_t& code : weight.codes) {
    if (!extreme) code = static_cast<std::int8_t>(static_cast<int>(rng.below(256)) - 128);
  }
  weight.scales.resize(static_cast<std::size_t>(rows));
  for (float& scale : weight.scales) scale = static_cast<float>(std::exp2(8 * rng.uniform() - 12));
  weight.segment.weight = matrix_view(memory_->put(weight.codes), DType::kI8, rows, cols);
  weight.segment.scales = {memory_->put(weight.scales), 1, static_cast<std::int32_t>(cols), 1};
  return weight;
}

// Appends the products of one row of x, as MatmulSegment defines them.
void append_products(std::span<const float> x, const Int8Weight& weight, std::vector<float>& out) {
  float largest = 0.0F;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  const bool zeros = largest < MatmulParams::kSmallestInput;
  const float factor = zeros ? 0.0F : 127.0F / largest;
  const float x_scale = zeros ? 0.0F : largest / 127.0F;
  std::vector<std::int64_t> codes;
  for (const float value : x)
    codes.push_back(static_cast<std::int64_t>(std::nearbyint(value * factor)));
  for (std::size_t n = 0; n < weight.scales.size(); ++n) {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k) sum += codes[k] * weight.codes[n * x.size() + k];
    const float product = static_cast<float>(sum) * (x_scale * weight.scales[n]);
    out.push_back(weight.bias.empty() ? product : product + weight.bias[n]);
  }
}

std::vector<float> MatmulInt8Test::run(const std::vector<float>& x, DType x_type,
                                       const MatmulShape& shape,
                                       const std::vector<Int8Weight>& weights) {
  std::vector<MatmulSegment> segments;
  for (const Int8Weight& weight : weights) segments.push_back(weight.segment);
  return multiply(memory_->put_matrix(x, shape.rows, shape.depth, x_type, shape.depth + 3),
                  segments);
}

void MatmulInt8Test::check(const MatmulShape& shape, DType x_type, bool with_bias, SplitMix64& rng,
                           bool extreme) {
  memory_->clear();
  auto x = round_to(x_type, random_floats(rng, static_cast<std::size_t>(shape.rows * shape.depth)));
  if (extreme) std::fill(x.begin(), x.end(), 3.0F);
  std::vector<Int8Weight> weights;
  for (const std::int64_t n : shape.cols) {
    Int8Weight& weight = weights.emplace_back(put_weight(rng, n, shape.depth, extreme));
    if (!with_bias) continue;
    weight.bias = round_to(DType::kBF16, random_floats(rng, static_cast<std::size_t>(n)));
    weight.segment.bias = memory_->put_vector(weight.bias, DType::kBF16);
  }
  std::vector<float> want;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const auto of_row = std::span(x).subspan(static_cast<std::size_t>(row * shape.depth),
                                             static_cast<std::size_t>(shape.depth));
    for (const Int8Weight& weight : weights) append_products(of_row, weight, want);
  }
  expect_same(run(x, x_type, shape, weights), want,
              std::string(dtype_name(x_type)) + " x int8, " + std::to_string(shape.rows) + " x " +
                  std::to_string(shape.depth));
}

TEST_P(MatmulInt8Test, HasTheDefinedBits) {
  SplitMix64 rng(1);
  for (const DType x : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const MatmulShape& shape :
         {MatmulShape{1, 320, {130, 40}}, MatmulShape{3, 1, {1}},
          MatmulShape{5, 33, {7, 2}},     MatmulShape{2, 200, {9, 12, 5}},
          MatmulShape{21, 127, {70}},     MatmulShape{70, 64, {66}},
          MatmulShape{1, 199, {5}},       MatmulShape{3, 321, {6}},
          MatmulShape{4, 1000, {6}},      MatmulShape{4, 8200, {3}},
          MatmulShape{6, 130, {35}},      MatmulShape{7, 64, {16, 48}},
          MatmulShape{13, 300, {17}},     MatmulShape{16, 1030, {40}},
          MatmulShape{17, 200, {33, 20}}, MatmulShape{29, 513, {50}},
          MatmulShape{32, 128, {32}},     MatmulShape{33, 1300, {49}},
          MatmulShape{38, 640, {64}},     MatmulShape{47, 577, {97}},
          MatmulShape{9, 4200, {15}},     MatmulShape{32, 6210, {26}},
          MatmulShape{20, 60000, {12}},   MatmulShape{300, 70, {50}}}) {
      check(shape, x, shape.rows % 2 == 1, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// So deep that the sums of several blocks of columns wait for parts along K.
TEST_P(MatmulInt8Test, ManyRowsInPartsAlongK) {
  SplitMix64 rng(3);
  check({34, 16'700, {210}}, DType::kBF16, true, rng);
}

// Sums at the ends of 32 bits, and more rows than the scratch memory for codes has room for.
TEST_P(MatmulInt8Test, TheLongestRowsDoNotOverflow) {
  SplitMix64 rng(2);
  check({34, MatmulParams::kMaxIntegerDepth, {2}}, DType::kF32, false, rng, true);
}

TEST_P(MatmulInt8Test, RowsOfZerosTinyAndBadNumbers) {
  SplitMix64 rng(3);
  constexpr std::int64_t kDepth = 40;
  const MatmulShape shape{6, kDepth, {9}};
  const std::vector<Int8Weight> weights = {put_weight(rng, 9, kDepth, false)};
  auto x = random_floats(rng, 6 * kDepth);
  std::fill_n(x.begin() + 1 * kDepth, kDepth, 0.0F);
  std::fill_n(x.begin() + 2 * kDepth, kDepth, 1e-38F);
  x[3 * kDepth + 39] = std::numeric_limits<float>::infinity();
  x[4 * kDepth + 17] = std::numeric_limits<float>::quiet_NaN();
  const auto out = run(x, DType::kF32, shape, weights);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / 9;
    EXPECT_EQ(std::isnan(out[i]), row == 3 || row == 4) << i;
    if (row == 1 || row == 2) {
      EXPECT_EQ(out[i], 0.0F) << i;
    }
  }
}

TEST_P(MatmulInt8Test, GatedProductsHaveTheirBits) {
  SplitMix64 rng(5);
  for (const std::int64_t depth : {100, 320, 4200}) {
    for (const std::int64_t rows : {3, 66, 97, 517, 530}) {
      if (rows * depth > 500'000) continue;
      if (GetParam().name == "cpu_reference" && rows > 3) continue;
      memory_->clear();
      GatedMatmulParams p;
      p.gate = put_weight(rng, 150, depth, false).segment;
      p.up = put_weight(rng, 150, depth, false).segment;
      p.x = memory_->put_matrix(random_floats(rng, static_cast<std::size_t>(rows * depth)), rows,
                                depth, DType::kBF16);
      p.scratch = memory_->take_matrix(rows, 300, DType::kF32);
      p.out = memory_->take_matrix(rows, 150, rows == 97 ? DType::kF32 : DType::kBF16, 155);
      p.activation = rows == 66 ? GatedActivation::kGeluTanh : GatedActivation::kSilu;
      p.rows = {nullptr, static_cast<std::int32_t>(rows)};
      check_gated_bits(p, std::to_string(rows) + " x " + std::to_string(depth));
    }
  }
  memory_->check_guards();
}

TEST_P(MatmulInt8Test, EmbeddingsAreCodesTimesScales) {
  SplitMix64 rng(4);
  const Int8Weight table = put_weight(rng, 9, 77, false);
  EmbedParams p;
  p.table = table.segment.weight;
  p.scales = table.segment.scales;
  p.token_ids = memory_->put(std::vector<std::int32_t>{8, 0, 3, 3});
  p.out = memory_->take_matrix(4, 77, DType::kF32);
  p.rows = {nullptr, 4};
  ops().run(p);
  std::vector<float> want;
  for (const std::size_t id : {8, 0, 3, 3}) {
    for (std::size_t i = 0; i < 77; ++i) {
      want.push_back(static_cast<float>(table.codes[id * 77 + i]) * table.scales[id]);
    }
  }
  expect_same(result(p.out), want, "embedding");
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulInt8Test, testing::ValuesIn(available_cpus()), case_name);

}  // namespace
}  // namespace sluice::parity
