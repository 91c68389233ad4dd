// The two products of an MLP and its activation in one op: the same bits as the two ops that it
// stands for, whether a backend does it in one go or not, and close to what it means.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/parity/expected_products.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct GatedShape {
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t width;
  std::int64_t stride = 0;       // elements between rows of x; 0: three beyond the end of a row
  std::int32_t spare_rows = 5;   // of the capacity, of which buffers have none
  std::size_t misalignment = 0;  // of the weights
  DType out = DType::kBF16;
};

class GatedMatmulTest : public DeviceTest {
 protected:
  GatedMatmulParams make(const GatedShape& shape, DType x, DType weight, bool with_bias,
                         SplitMix64& rng);
  // Against plain loops in double precision.
  void check(const GatedMatmulParams& p, const std::string& what);
};

std::string describe_gated(const GatedMatmulParams& p) {
  return std::string(dtype_name(p.x.dtype)) + " x " + std::string(dtype_name(p.gate.weight.dtype)) +
         ", " + std::to_string(p.rows.capacity) + " x " + std::to_string(p.x.dims[1]) + " x " +
         std::to_string(p.out.dims[1]);
}

std::size_t cells(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

GatedMatmulParams GatedMatmulTest::make(const GatedShape& shape, DType x, DType weight,
                                        bool with_bias, SplitMix64& rng) {
  const auto segment = [&] {
    MatmulSegment made;
    made.weight =
        memory_->put_matrix(random_floats(rng, cells(shape.width, shape.depth)), shape.width,
                            shape.depth, weight, shape.depth, shape.misalignment);
    const auto bias = random_floats(rng, static_cast<std::size_t>(shape.width));
    if (with_bias) made.bias = memory_->put_vector(bias, weight);
    return made;
  };
  GatedMatmulParams p;
  p.x = memory_->put_matrix(random_floats(rng, cells(shape.rows, shape.depth)), shape.rows,
                            shape.depth, x, shape.stride == 0 ? shape.depth + 3 : shape.stride);
  p.gate = segment();
  p.up = segment();
  p.scratch = memory_->take_matrix(shape.rows, 2 * shape.width, DType::kF32);
  p.out = memory_->take_matrix(shape.rows, shape.width, shape.out, shape.width + 3);
  p.activation = rng.below(2) == 0 ? GatedActivation::kSilu : GatedActivation::kGeluTanh;
  p.rows = {memory_->put_count(static_cast<std::int32_t>(shape.rows)),
            static_cast<std::int32_t>(shape.rows) + shape.spare_rows};
  return p;
}

Sums sums_of(DeviceMemory& memory, const TensorView& x_view, const MatmulSegment& segment) {
  const auto x = memory.read_matrix(x_view);
  const auto w = memory.read_matrix(segment.weight);
  std::vector<float> bias;
  if (!segment.bias.empty()) {
    bias = memory.read_matrix(
        matrix_view(segment.bias.data, segment.bias.dtype, 1, segment.weight.dims[0]));
  }
  return expected_products<float>(x, w, bias, static_cast<std::size_t>(x_view.dims[1]));
}

double activation_of(GatedActivation kind, double gate) {
  if (kind == GatedActivation::kSilu) return gate / (1.0 + std::exp(-gate));
  return 0.5 * gate *
         (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
}

void GatedMatmulTest::check(const GatedMatmulParams& p, const std::string& what) {
  ops().run(p);
  const auto got = result(p.out);
  const Sums gate = sums_of(*memory_, p.x, p.gate);
  const Sums up = sums_of(*memory_, p.x, p.up);
  std::vector<double> want;
  std::vector<double> tolerance;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double activated = activation_of(p.activation, gate.values[i]);
    want.push_back(activated * up.values[i]);
    // Neither activation is steeper than 1.13.
    tolerance.push_back(1.2 * gate.tolerance[i] * (std::abs(up.values[i]) + up.tolerance[i]) +
                        std::abs(activated) * up.tolerance[i] + std::abs(want.back()) * 0x1p-20 +
                        rounding_error(p.out.dtype, want.back()) + 1e-12);
  }
  expect_close(got, want, tolerance, what);
}

constexpr std::pair<DType, DType> kGatedTypes[] = {{DType::kF32, DType::kF32},
                                                   {DType::kF32, DType::kF16},
                                                   {DType::kF32, DType::kBF16},
                                                   {DType::kBF16, DType::kBF16}};

TEST_P(GatedMatmulTest, OddShapes) {
  SplitMix64 rng(1);
  const GatedShape shapes[] = {{1, 1, 1},
                               {1, 7, 5},
                               {3, 33, 24},
                               {7, 100, 33},
                               {17, 64, 31},
                               {33, 20, 70, 0, 5, 2},
                               {70, 9, 65, 0, 5, 0, DType::kF32}};
  for (const auto& [x, weight] : kGatedTypes) {
    for (GatedShape shape : shapes) {
      if (weight == DType::kF32) shape.misalignment *= 2;
      const GatedMatmulParams p = make(shape, x, weight, shape.depth % 2 != 0, rng);
      check(p, describe_gated(p));
      check_gated_bits(p, describe_gated(p));
      if (HasFatalFailure()) return;
    }
  }
  memory_->check_guards();
}

// Shapes that tensor cores take, around the borders of tiles.
TEST_P(GatedMatmulTest, HalvesAtWholeAddresses) {
  SplitMix64 rng(2);
  const GatedShape shapes[] = {{1, 64, 8, 64},       {3, 8, 5, 16},
                               {8, 520, 17, 528},    {9, 72, 33, 72},
                               {16, 1000, 16, 1000}, {17, 64, 65, 64, 5, 0, DType::kF32},
                               {57, 16, 32, 24},     {64, 392, 34, 392},
                               {121, 88, 150, 96},   {130, 72, 300, 72, 0}};
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (GatedShape shape : shapes) {
      if (type == DType::kF16 && shape.out == DType::kBF16) shape.out = DType::kF16;
      const GatedMatmulParams p =
          make(shape, device_->traits().matmul_input_dtype(type), type, shape.rows % 2 != 0, rng);
      check(p, describe_gated(p));
      check_gated_bits(p, describe_gated(p));
      if (HasFatalFailure()) return;
    }
  }
  memory_->check_guards();
}

TEST_P(GatedMatmulTest, LargeEnoughForAllThreads) {
  SplitMix64 rng(3);
  for (const auto& [x, weight] : kGatedTypes) {
    for (const std::int64_t rows : {1, 19, 150, 530}) {
      memory_->clear();
      const GatedMatmulParams p = make({rows, 300, 701}, x, weight, rows == 19, rng);
      check_gated_bits(p, describe_gated(p));
    }
  }
}

// The last part of many rows has few.
TEST_P(GatedMatmulTest, FewRowsInTheLastPart) {
  SplitMix64 rng(6);
  for (const std::int64_t rows : {257, 263, 513, 525, 545}) {
    memory_->clear();
    const GatedMatmulParams p = make({rows, 2048, 40}, DType::kBF16, DType::kBF16, false, rng);
    check_gated_bits(p, describe_gated(p));
  }
}

// Sums wait in memory between passes along K.
TEST_P(GatedMatmulTest, InPartsAlongK) {
  SplitMix64 rng(5);
  for (const std::int64_t depth : {2080, 4101}) {
    for (const std::int64_t rows : {66, 97}) {
      memory_->clear();
      const GatedMatmulParams p = make({rows, depth, 150}, DType::kBF16, DType::kBF16, false, rng);
      check_gated_bits(p, describe_gated(p));
    }
  }
}

TEST_P(GatedMatmulTest, RowsNotInUseAreLeftAlone) {
  SplitMix64 rng(4);
  for (const std::int64_t rows : {0, 2}) {
    GatedMatmulParams p = make({rows + 4, 64, 40, 64, 0}, DType::kBF16, DType::kBF16, true, rng);
    ops().run(p);
    const auto before = result(p.out);
    const std::int32_t* fewer = memory_->put_count(static_cast<std::int32_t>(rows));
    const std::vector<float> zeros(cells(rows + 4, 64));
    p.x = memory_->put_matrix(zeros, rows + 4, 64, DType::kBF16);
    p.rows.value = fewer;
    ops().run(p);
    const auto after = result(p.out);
    const auto used = static_cast<std::size_t>(rows * 40);
    expect_same(std::span(after).subspan(used), std::span(before).subspan(used), "rows after them");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, GatedMatmulTest, testing::ValuesIn(available_devices()),
                         case_name);

}  // namespace
}  // namespace sluice::parity
