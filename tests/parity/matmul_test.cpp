#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parity/expected_products.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t depth;
  std::vector<std::int64_t> cols;  // of each segment
  std::int64_t x_stride = 0;       // elements; 0: three beyond the end of a row
  std::int32_t spare_rows = 7;     // of the capacity, of which x and out have none
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
  p.x = memory_->put_matrix(x, shape.rows, shape.depth, types.x,
                            shape.x_stride == 0 ? shape.depth + 3 : shape.x_stride);
  p.out = memory_->take_matrix(shape.rows, total_cols, DType::kF32, total_cols + 5);
  p.rows = {memory_->put_count(static_cast<std::int32_t>(shape.rows)),
            static_cast<std::int32_t>(shape.rows) + shape.spare_rows};

  Sums want;
  want.width = static_cast<std::size_t>(total_cols);
  std::int64_t column = 0;
  for (const std::int64_t n : shape.cols) {
    const auto weight = round_to(types.weight, random_floats(rng, count(n, shape.depth)));
    auto bias = round_to(types.weight, random_floats(rng, static_cast<std::size_t>(n)));
    MatmulSegment& segment = p.segments[p.num_segments++];
    segment.weight =
        memory_->put_matrix(weight, n, shape.depth, types.weight, shape.depth, misalignment);
    if (with_bias) segment.bias = memory_->put_vector(bias, types.weight);
    if (!with_bias) bias.clear();
    put_columns(expected_products<float>(x, weight, bias, static_cast<std::size_t>(shape.depth)),
                static_cast<std::size_t>(column), want);
    column += n;
  }
  ops().run(p);
  expect_close(result(p.out), want.values, want.tolerance, describe(shape, types));
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

// Rows of 16-bit elements at multiples of 16 bytes, which is what tensor cores take: numbers of
// rows and columns around the borders of their tiles.
TEST_P(MatmulTest, HalvesAtWholeAddresses) {
  SplitMix64 rng(6);
  const Shape shapes[] = {{1, 64, {16}, 64},           {3, 8, {5}, 16},
                          {8, 520, {17, 31}, 528},     {9, 72, {33, 1}, 72},
                          {16, 1000, {32}, 1000},      {17, 64, {65}, 64},
                          {30, 456, {5, 130, 7}, 464}, {57, 16, {64}, 24},
                          {64, 392, {66}, 392},        {121, 88, {300, 131}, 96}};
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const Shape& shape : shapes) {
      check(shape, {device_->traits().matmul_input_dtype(type), type}, shape.rows % 2 != 0, 0, rng);
      if (HasFatalFailure()) return;
    }
  }
}

// The kernels for few rows: fixed orders too, whatever is asked for.
TEST_P(MatmulTest, AFewRowsAreTheSameInAnyPlace) {
  constexpr std::int64_t kDepth = 1000;
  constexpr std::int64_t kCols = 50;
  for (const std::int64_t capacity : {8, 16}) {
    SplitMix64 rng(9);
    const auto w = random_floats(rng, kDepth * kCols);
    auto x = random_floats(rng, static_cast<std::size_t>(capacity * kDepth));
    const auto run = [&] {
      MatmulParams p;
      p.x = memory_->put_matrix(x, capacity, kDepth, DType::kBF16);
      p.segments[0].weight = memory_->put_matrix(w, kCols, kDepth, DType::kBF16);
      p.num_segments = 1;
      p.out = memory_->take_matrix(capacity, kCols, DType::kF32);
      p.rows = {nullptr, static_cast<std::int32_t>(capacity)};
      ops().run(p);
      return result(p.out);
    };
    const auto want = run();
    std::rotate(x.begin(), x.begin() + 3 * kDepth, x.end());
    auto got = run();
    std::rotate(got.begin(), got.end() - 3 * kCols, got.end());
    expect_same(got, want, "capacity " + std::to_string(capacity));
  }
}

// With so many rows that a kernel may widen or pack x and the weight before it multiplies, in one
// pass along K, in many, and at depths that it leaves to the kernel for few rows; with numbers of
// rows for each kernel that reads a weight once; with narrow tiles at both ends.
TEST_P(MatmulTest, RowsTogetherHaveTheBitsOfOne) {
  if (GetParam().name.starts_with("cuda")) GTEST_SKIP() << "the order depends on the rows there";
  if (GetParam().name == "cpu_reference") GTEST_SKIP() << "too slow, and row by row anyway";
  constexpr std::int64_t kCols = 24 * 32 + 7;  // pieces of them are wide enough
  struct Case {
    std::int64_t depth;
    std::int32_t rows;
  };
  for (const auto& [depth, rows] : std::initializer_list<Case>{
           {40, 71},   {1024, 71},  {1025, 71},  {1500, 71},  {2048, 71},  {2049, 71},
           {9300, 35}, {1100, 261}, {3100, 261}, {1500, 45},  {1100, 530}, {64, 2},
           {2048, 3},  {1500, 4},   {3077, 6},   {9300, 8},   {1024, 9},   {2100, 12},
           {3072, 16}, {8200, 31},  {1056, 31},  {1100, 257}, {1100, 513}}) {
    memory_->clear();
    SplitMix64 rng(depth);
    const auto count = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::size_t>(a * b);
    };
    const auto x = random_floats(rng, count(rows, depth));
    MatmulParams p;
    p.segments[0].weight = memory_->put_matrix(random_floats(rng, count(kCols, depth)), kCols,
                                               depth, DType::kBF16, depth + 5);
    p.segments[0].bias = memory_->put_vector(random_floats(rng, kCols), DType::kBF16);
    p.num_segments = 1;
    p.out = memory_->take_matrix(rows, kCols, DType::kF32);
    p.x = memory_->put_matrix(x, rows, depth, DType::kBF16, depth + 3);
    p.rows = {nullptr, rows};
    ops().run(p);
    const auto all = result(p.out);
    for (const std::int64_t row : {0, rows / 2, rows - 2, rows - 1}) {
      MatmulParams one = p;
      one.x = memory_->put_matrix({x.begin() + row * depth, x.begin() + (row + 1) * depth}, 1,
                                  depth, DType::kBF16);
      one.out = memory_->take_matrix(1, kCols, DType::kF32);
      one.rows = {nullptr, 1};
      ops().run(one);
      expect_same({all.begin() + row * kCols, all.begin() + (row + 1) * kCols}, result(one.out),
                  "row " + std::to_string(row) + " of depth " + std::to_string(depth));
    }
  }
}

// Enough tiles of 128 by 128 for every multiprocessor of a real GPU.
TEST_P(MatmulTest, ManyLargeTiles) {
  if (GetParam().name != "cuda") GTEST_SKIP() << "only GPUs are that wide";
  SplitMix64 rng(7);
  check({1030, 200, {2100, 700}, 200}, {DType::kBF16, DType::kBF16}, true, 0, rng);
  check({1030, 200, {2800}, 200}, {DType::kF16, DType::kF16}, false, 0, rng);
  // With rows for the whole capacity and without biases: what a library takes.
  for (const DType type : {DType::kBF16, DType::kF16}) {
    check({1030, 200, {2100, 700}, 200, 0}, {type, type}, false, 0, rng);
    check({33, 4096, {384, 72}, 4096, 0}, {type, type}, false, 0, rng);
  }
}

// The contents of x and out beyond the rows in use do not matter: capacities are larger than
// counts.
TEST_P(MatmulTest, RowsBehindTheCountChangeNothing) {
  SplitMix64 rng(8);
  const auto w = random_floats(rng, 40 * 64);
  for (const std::int64_t capacity : {8, 16, 64, 200}) {
    const std::int64_t rows = capacity / 2 + 1;
    auto x = random_floats(rng, static_cast<std::size_t>(capacity) * 64);
    const auto run = [&] {
      memory_->clear();
      MatmulParams p;
      p.x = memory_->put_matrix(x, capacity, 64, DType::kBF16);
      p.segments[0].weight = memory_->put_matrix(w, 40, 64, DType::kBF16);
      p.num_segments = 1;
      p.out = memory_->take_matrix(capacity, 40, DType::kF32);
      p.rows = {memory_->put_count(static_cast<std::int32_t>(rows)),
                static_cast<std::int32_t>(capacity)};
      ops().run(p);
      auto out = result(p.out);
      out.resize(static_cast<std::size_t>(rows) * 40);
      return out;
    };
    const auto want = run();
    for (std::size_t i = static_cast<std::size_t>(rows) * 64; i < x.size(); ++i) {
      x[i] = i % 2 == 0 ? INFINITY : std::nanf("");
    }
    expect_same(run(), want, "capacity " + std::to_string(capacity));
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

// Files begin their weights at multiples of 8 bytes, not of a line of memory.
TEST_P(MatmulTest, BitsDoNotDependOnTheAddressOfAWeight) {
  constexpr std::int64_t kDepth = 2100;
  constexpr std::int64_t kCols = 40;
  SplitMix64 rng(22);
  for (const Types types : kTypes) {
    const auto weight = round_to(types.weight, random_floats(rng, kCols * kDepth));
    std::vector<MatmulSegment> segments;
    for (const std::size_t misalignment : {0, 8, 36}) {
      segments.emplace_back().weight =
          memory_->put_matrix(weight, kCols, kDepth, types.weight, kDepth, misalignment);
    }
    for (const std::int64_t rows : {1, 7, 21, 205}) {
      const TensorView x = memory_->put_matrix(
          round_to(types.x, random_floats(rng, static_cast<std::size_t>(rows * kDepth))), rows,
          kDepth, types.x);
      const std::vector<float> want = multiply(x, {segments[0]});
      for (std::size_t i = 1; i < segments.size(); ++i) {
        expect_same(multiply(x, {segments[i]}), want,
                    std::to_string(rows) + " x " + std::string(dtype_name(types.weight)));
      }
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
  for (const std::size_t depth : {70, 72}) {
    for (const Types types : kTypes) {
      for (const std::size_t rows : {5, 20}) {
        const auto cols = static_cast<std::int64_t>(depth);
        const auto count = static_cast<std::int32_t>(rows);
        auto x = random_floats(rng, rows * depth);
        auto w = random_floats(rng, 9 * depth);
        x[2 * depth - 1] = std::nanf("");
        w[4 * depth + 3] = INFINITY;
        MatmulParams p;
        p.x = memory_->put_matrix(x, count, cols, types.x);
        p.segments[0].weight = memory_->put_matrix(w, 9, cols, types.weight);
        p.num_segments = 1;
        p.out = memory_->take_matrix(count, 9, DType::kF32);
        p.rows = {nullptr, count};
        ops().run(p);
        const auto out = result(p.out);
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t c = 0; c < 9; ++c) {
            EXPECT_EQ(std::isfinite(out[r * 9 + c]), r != 1 && c != 4) << r << "," << c;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
