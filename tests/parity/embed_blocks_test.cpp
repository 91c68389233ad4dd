// The embedding of weights in blocks (INT4 and the types of GGUF files and of other tools) has the
// elements rounded to BF16, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tensor/gguf_blocks.h"
#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

class EmbedBlocksTest : public DeviceTest {
 protected:
  struct Weights {
    TensorView blocks;
    TensorView widened;
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
EmbedBlocksTest::Weights EmbedBlocksTest::put_weights(SplitMix64& rng, DType dtype,
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
  weights.blocks = matrix_view(memory_->put(blocks), dtype, rows, cols);
  weights.widened = memory_->put_matrix(values, rows, cols, DType::kBF16);
  return weights;
}

TEST_P(EmbedBlocksTest, RoundsToBf16) {
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
    expect_same(embed(weights.blocks), embed(weights.widened), dtype_name(dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EmbedBlocksTest, testing::ValuesIn(available_cpus()), case_name);

}  // namespace
}  // namespace sluice::parity
