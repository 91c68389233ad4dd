// Where blocks_as_bf16, matrix products with weights in blocks (INT4 and the types of GGUF files
// and of other tools) have the bits of products with the same weights in BF16, at every number of
// rows (elsewhere: matmul_quantized_test.cpp). So does the embedding, on each instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tensor/gguf_blocks.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

class MatmulBlocksTest : public DeviceTest {
 protected:
  struct Weights {
    MatmulSegment blocks;
    MatmulSegment widened;
  };
  Weights put_weights(SplitMix64& rng, DType dtype, std::int64_t rows, std::int64_t cols);
};

// Where a block holds numbers in F16.
std::vector<std::size_t> places_of_f16(DType dtype) {
  if (dtype == DType::kQ2K) return {80, 82};
  if (has_minimum(dtype)) return {0, 2};
  if (dtype == DType::kQ3K) return {108};
  if (dtype == DType::kQ6K) return {208};
  if (dtype == DType::kU4G128 || dtype == DType::kU8G128) return {};
  return {0};
}

// Factors of every size that F16 has below 2, and codes of any value.
MatmulBlocksTest::Weights MatmulBlocksTest::put_weights(SplitMix64& rng, DType dtype,
                                                        std::int64_t rows, std::int64_t cols) {
  const std::int64_t row_bytes = bytes_of(dtype, cols);
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(rows * row_bytes));
  for (std::uint8_t& byte : blocks) byte = static_cast<std::uint8_t>(rng.below(256));
  const auto block_bytes = static_cast<std::size_t>(block_of(dtype).bytes);
  for (std::size_t at = 0; at < blocks.size(); at += block_bytes) {
    for (const std::size_t place : places_of_f16(dtype)) {
      blocks[at + place + 1] = static_cast<std::uint8_t>(blocks[at + place + 1] & 0xBF);
    }
    if (dtype == DType::kU4G128 || dtype == DType::kU8G128) {
      const auto scale = static_cast<float>(rng.uniform() - 0.5);
      std::memcpy(blocks.data() + at, &scale, sizeof(scale));
    }
  }
  std::vector<float> values;
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < cols; ++k) {
      values.push_back(block_element(dtype, blocks.data() + n * row_bytes, k));
    }
  }
  Weights weights;
  weights.blocks.weight = matrix_view(memory_->put(blocks), dtype, rows, cols);
  weights.widened.weight = memory_->put_matrix(values, rows, cols, DType::kBF16);
  return weights;
}

TEST_P(MatmulBlocksTest, HasTheBitsOfBf16) {
  if (!device_->traits().blocks_as_bf16) GTEST_SKIP() << "quantizes inputs";
  SplitMix64 rng(1);
  struct Shape {
    DType dtype;
    std::int64_t depth;
    std::vector<std::int64_t> cols;
  };
  for (const auto& [dtype, depth, cols] : {Shape{DType::kI4, 1, {1}},
                                           Shape{DType::kI4, 33, {7, 2}},
                                           Shape{DType::kI4, 192, {13}},
                                           Shape{DType::kI4, 416, {40, 9, 5}},
                                           Shape{DType::kI4, 1100, {40, 17}},
                                           Shape{DType::kQ4_1, 96, {13, 2}},
                                           Shape{DType::kQ4_1, 416, {40, 5}},
                                           Shape{DType::kQ5_0, 96, {13, 2}},
                                           Shape{DType::kQ5_0, 416, {40, 5}},
                                           Shape{DType::kQ5_1, 96, {13, 2}},
                                           Shape{DType::kQ5_1, 416, {40, 5}},
                                           Shape{DType::kIq4Nl, 96, {13, 2}},
                                           Shape{DType::kIq4Nl, 416, {40, 5}},
                                           Shape{DType::kIq4Xs, 256, {7, 1}},
                                           Shape{DType::kIq4Xs, 768, {40, 5}},
                                           Shape{DType::kQ8_0, 96, {13, 2}},
                                           Shape{DType::kQ8_0, 576, {33}},
                                           Shape{DType::kQ8_0, 416, {40, 5}},
                                           Shape{DType::kU4G32, 33, {7, 2}},
                                           Shape{DType::kU4G32, 416, {40, 9, 5}},
                                           Shape{DType::kU4G32, 544, {33}},
                                           Shape{DType::kU4G128, 1, {1}},
                                           Shape{DType::kU4G128, 200, {7, 2}},
                                           Shape{DType::kU4G128, 768, {40, 9, 5}},
                                           Shape{DType::kU8G128, 1, {1}},
                                           Shape{DType::kU8G128, 200, {7, 2}},
                                           Shape{DType::kU8G128, 768, {40, 9, 5}},
                                           Shape{DType::kQ2K, 256, {7, 1}},
                                           Shape{DType::kQ2K, 768, {40, 5}},
                                           Shape{DType::kQ3K, 256, {7, 1}},
                                           Shape{DType::kQ3K, 768, {40, 5}},
                                           Shape{DType::kQ5K, 256, {7, 1}},
                                           Shape{DType::kQ5K, 768, {40, 5}},
                                           Shape{DType::kQ4K, 256, {7, 1}},
                                           Shape{DType::kQ4K, 768, {40, 5}},
                                           Shape{DType::kQ6K, 256, {7, 1}},
                                           Shape{DType::kQ6K, 768, {40, 5}}}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 14, 15, 16, 17, 40}) {
      memory_->clear();
      const TensorView x = memory_->put_matrix(
          random_floats(rng, static_cast<std::size_t>(rows * depth)), rows, depth, DType::kBF16);
      std::vector<MatmulSegment> blocks;
      std::vector<MatmulSegment> widened;
      for (const std::int64_t n : cols) {
        Weights weights = put_weights(rng, dtype, n, depth);
        weights.blocks.bias =
            memory_->put_vector(random_floats(rng, static_cast<std::size_t>(n)), DType::kBF16);
        weights.widened.bias = weights.blocks.bias;
        blocks.push_back(weights.blocks);
        widened.push_back(weights.widened);
      }
      expect_same(
          multiply(x, blocks), multiply(x, widened),
          std::to_string(rows) + " rows of " + std::to_string(depth) + " in " + dtype_name(dtype));
    }
  }
}

// So many rows that they do not stay in the cache, in more than one piece of columns. Kernels may
// widen weights of one depth and not those of the other beforehand.
TEST_P(MatmulBlocksTest, ManyRowsHaveTheBitsOfOne) {
  if (!device_->traits().blocks_as_bf16) GTEST_SKIP() << "quantizes inputs";
  SplitMix64 rng(2);
  constexpr std::int64_t kRows = 70;
  constexpr std::int64_t kCols = 24 * 32 + 7;
  for (const DType dtype : kBlockDTypes) {
    for (const std::int64_t depth : {1536, 4096}) {
      memory_->clear();
      const Weights weights = put_weights(rng, dtype, kCols, depth);
      const TensorView x = memory_->put_matrix(
          random_floats(rng, static_cast<std::size_t>(kRows * depth)), kRows, depth, DType::kBF16);
      const auto all = multiply(x, {weights.blocks});
      for (const std::int64_t row : {0, 37, 69}) {
        TensorView one = x;
        one.data = x.as<std::uint16_t>() + row * depth;
        one.dims[0] = 1;
        expect_same(multiply(one, {weights.blocks}),
                    std::span(all).subspan(static_cast<std::size_t>(row * kCols), kCols),
                    std::string(dtype_name(dtype)) + ", row " + std::to_string(row));
      }
    }
  }
}

TEST_P(MatmulBlocksTest, EmbeddingRoundsToBf16) {
  SplitMix64 rng(3);
  for (const DType dtype : kBlockDTypes) {
    memory_->clear();
    constexpr std::int64_t kWidth = 512;
    const Weights weights = put_weights(rng, dtype, 5, kWidth);
    const auto embed = [&](const TensorView& table) {
      EmbedParams p;
      p.table = table;
      p.token_ids = memory_->put(std::vector<std::int32_t>{4, 0, 3});
      p.out = memory_->take_matrix(3, kWidth, DType::kF32, kWidth + 1);
      p.rows = {nullptr, 3};
      ops().run(p);
      return result(p.out);
    };
    expect_same(embed(weights.blocks.weight), embed(weights.widened.weight), dtype_name(dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MatmulBlocksTest, testing::ValuesIn(available_cpus()), case_name);

}  // namespace
}  // namespace sluice::parity
