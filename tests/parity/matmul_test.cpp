#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t depth;
  std::vector<std::int64_t> cols;  // of each segment
};

struct Types {
  DType x;
  DType weight;
};

class MatmulTest : public DeviceTest {
 protected:
  void check(const Shape& shape, Types types, bool with_bias, std::size_t misalignment,
             SplitMix64& rng);
};

std::string describe(const Shape& shape, Types types) {
  std::string text = std::string(dtype_name(types.x)) + " x " + dtype_name(types.weight) + ", " +
                     std::to_string(shape.rows) + " x " + std::to_string(shape.depth) + " x";
  for (const std::int64_t n : shape.cols) text += " " + std::to_string(n);
  return text;
}

void MatmulTest::check(const Shape& shape, Types types, bool with_bias, std::size_t misalignment,
                       SplitMix64& rng) {
  const std::int64_t total_cols = [&] {
    std::int64_t sum = 0;
    for (const std::int64_t n : shape.cols) sum += n;
    return sum;
  }();
  const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const auto x = round_to(types.x, random_floats(rng, count(shape.rows, shape.depth)));
  MatmulParams p;
  p.x = memory_->put_matrix(x, shape.rows, shape.depth, types.x, shape.depth + 3);
  p.out = memory_->take_matrix(shape.rows, total_cols, DType::kF32, total_cols + 5);
  p.rows = {memory_->put_count(static_cast<std::int32_t>(shape.rows)),
            static_cast<std::int32_t>(shape.rows) + 7};

  std::vector<double> want(count(shape.rows, total_cols));
  std::vector<double> tolerance(want.size());
  std::int64_t column = 0;
  for (const std::int64_t n : shape.cols) {
    const auto weight = round_to(types.weight, random_floats(rng, count(n, shape.depth)));
    const auto bias = round_to(types.weight, random_floats(rng, static_cast<std::size_t>(n)));
    MatmulSegment& segment = p.segments[p.num_segments++];
    segment.weight =
        memory_->put_matrix(weight, n, shape.depth, types.weight, shape.depth, misalignment);
    if (with_bias) segment.bias = memory_->put_vector(bias, types.weight);
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = with_bias ? bias[static_cast<std::size_t>(c)] : 0.0;
        double magnitude = std::abs(sum);
        for (std::int64_t k = 0; k < shape.depth; ++k) {
          const double term =
              static_cast<double>(x[count(r, shape.depth) + static_cast<std::size_t>(k)]) *
              weight[count(c, shape.depth) + static_cast<std::size_t>(k)];
          sum += term;
          magnitude += std::abs(term);
        }
        const auto at = static_cast<std::size_t>(r * total_cols + column + c);
        want[at] = sum;
        tolerance[at] = magnitude * (static_cast<double>(shape.depth) / 8 + 8) * 0x1p-24;
      }
    }
    column += n;
  }
  ops().matmul(p);
  expect_close(result(p.out), want, tolerance, describe(shape, types));
}

constexpr Types kTypes[] = {{DType::kF32, DType::kF32},
                            {DType::kF32, DType::kF16},
                            {DType::kF32, DType::kBF16},
                            {DType::kBF16, DType::kBF16}};

TEST_P(MatmulTest, OddShapes) {
  SplitMix64 rng(1);
  const Shape shapes[] = {{1, 1, {1}},     {1, 7, {5}},          {2, 31, {3, 4}}, {3, 32, {24}},
                          {4, 33, {25}},   {5, 64, {6, 1, 7}},   {7, 100, {13}},  {8, 96, {30}},
                          {17, 127, {31}}, {20, 48, {64, 8, 8}}, {33, 20, {50}}};
  for (const Types types : kTypes) {
    for (const Shape& shape : shapes) {
      check(shape, types, (shape.depth & 1) != 0, 0, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(MatmulTest, WeightsAtOddAddresses) {
  SplitMix64 rng(2);
  for (const Types types : kTypes) {
    for (const std::size_t misalignment : {2, 4, 6, 34}) {
      if (misalignment % size_of(types.weight) != 0) continue;
      check({3, 65, {14, 3}}, types, true, misalignment, rng);
    }
  }
}

TEST_P(MatmulTest, LargeEnoughForAllThreads) {
  SplitMix64 rng(3);
  for (const Types types : kTypes) {
    check({1, 512, {700}}, types, false, 0, rng);
    check({19, 300, {517, 100}}, types, true, 0, rng);
  }
}

TEST_P(MatmulTest, NoRows) {
  SplitMix64 rng(4);
  check({0, 16, {8}}, kTypes[0], false, 0, rng);
}

TEST_P(MatmulTest, InfinityAndNanStayInTheirRowsAndColumns) {
  SplitMix64 rng(5);
  const std::int64_t depth = 70;
  for (const Types types : kTypes) {
    auto x = random_floats(rng, 5 * 70);
    auto w = random_floats(rng, 9 * 70);
    x[1 * 70 + 69] = std::nanf("");
    w[4 * 70 + 3] = INFINITY;
    MatmulParams p;
    p.x = memory_->put_matrix(x, 5, depth, types.x);
    p.segments[0].weight = memory_->put_matrix(w, 9, depth, types.weight);
    p.num_segments = 1;
    p.out = memory_->take_matrix(5, 9, DType::kF32);
    p.rows = {nullptr, 5};
    ops().matmul(p);
    const auto out = result(p.out);
    for (std::size_t r = 0; r < 5; ++r) {
      for (std::size_t c = 0; c < 9; ++c) {
        EXPECT_EQ(std::isfinite(out[r * 9 + c]), r != 1 && c != 4) << r << "," << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
