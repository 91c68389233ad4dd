// The values of block types, bit for bit those of the package gguf. The file is written by that
// package (tools/make_gguf_goldens.py), so the test also reads a file that is not our own.
#include "tensor/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "checkpoint/gguf.h"
#include "tensor/half.h"

namespace sluice {
namespace {

constexpr const char* kGoldenBlocks = "tests/golden/gguf/blocks.gguf";

float golden_element(const GgufTensor& tensor, const std::byte* row, std::int64_t column) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(row);
  switch (tensor.type) {
    case GgufTensorType::kF16: return f16_to_float(halves[column]);
    case GgufTensorType::kBF16: return bf16_to_float(halves[column]);
    case GgufTensorType::kQ8_0: return block_element(DType::kQ8_0, row, column);
    case GgufTensorType::kQ4_0: return block_element(DType::kI4, row, column);
    case GgufTensorType::kQ4_1: return block_element(DType::kQ4_1, row, column);
    case GgufTensorType::kQ5_0: return block_element(DType::kQ5_0, row, column);
    case GgufTensorType::kQ5_1: return block_element(DType::kQ5_1, row, column);
    case GgufTensorType::kQ2_K: return block_element(DType::kQ2K, row, column);
    case GgufTensorType::kQ3_K: return block_element(DType::kQ3K, row, column);
    case GgufTensorType::kQ4_K: return block_element(DType::kQ4K, row, column);
    case GgufTensorType::kQ5_K: return block_element(DType::kQ5K, row, column);
    case GgufTensorType::kQ6_K: return block_element(DType::kQ6K, row, column);
    case GgufTensorType::kIQ4_NL: return block_element(DType::kIq4Nl, row, column);
    case GgufTensorType::kIQ4_XS: return block_element(DType::kIq4Xs, row, column);
    default: ADD_FAILURE() << tensor.name; return 0.0F;
  }
}

class GoldenBlocks : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenBlocks, ElementsEqualTheOracle) {
  auto model = GgufModel::open(kGoldenBlocks);
  ASSERT_TRUE(model) << model.error().message;
  const GgufTensor* tensor = model->find(GetParam());
  const GgufTensor* expected = model->find(std::string(GetParam()) + ".expected");
  ASSERT_TRUE(tensor != nullptr && expected != nullptr);
  ASSERT_EQ(gguf_tensor_type_name(tensor->type), GetParam());
  ASSERT_EQ(tensor->shape, (std::vector<std::int64_t>{3, 512}));
  ASSERT_EQ(expected->shape, tensor->shape);
  const auto* values = reinterpret_cast<const float*>(model->data(*expected).data());
  const std::byte* data = model->data(*tensor).data();
  const auto row_bytes = static_cast<std::int64_t>(tensor->bytes / 3);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t column = 0; column < 512; ++column) {
      const float value = golden_element(*tensor, data + row * row_bytes, column);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value),
                std::bit_cast<std::uint32_t>(values[row * 512 + column]))
          << row << ", " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenBlocks,
                         ::testing::Values("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                           "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
                                           "IQ4_XS"));

// The sizes of blocks, as the file format and the kernels see them.
TEST(GgufBlocks, SizesAgreeWithTheFormat) {
  const auto agree = [](GgufTensorType type, DType dtype) {
    const GgufTensorTypeInfo* info = gguf_tensor_type_info(type);
    return info->elements == block_of(dtype).elements && info->bytes == block_of(dtype).bytes;
  };
  EXPECT_TRUE(agree(GgufTensorType::kF32, DType::kF32));
  EXPECT_TRUE(agree(GgufTensorType::kBF16, DType::kBF16));
  EXPECT_TRUE(agree(GgufTensorType::kQ4_0, DType::kI4));
  EXPECT_TRUE(agree(GgufTensorType::kQ4_1, DType::kQ4_1));
  EXPECT_TRUE(agree(GgufTensorType::kQ5_0, DType::kQ5_0));
  EXPECT_TRUE(agree(GgufTensorType::kQ5_1, DType::kQ5_1));
  EXPECT_TRUE(agree(GgufTensorType::kQ8_0, DType::kQ8_0));
  EXPECT_TRUE(agree(GgufTensorType::kQ2_K, DType::kQ2K));
  EXPECT_TRUE(agree(GgufTensorType::kQ3_K, DType::kQ3K));
  EXPECT_TRUE(agree(GgufTensorType::kQ4_K, DType::kQ4K));
  EXPECT_TRUE(agree(GgufTensorType::kQ5_K, DType::kQ5K));
  EXPECT_TRUE(agree(GgufTensorType::kQ6_K, DType::kQ6K));
  EXPECT_TRUE(agree(GgufTensorType::kIQ4_NL, DType::kIq4Nl));
  EXPECT_TRUE(agree(GgufTensorType::kIQ4_XS, DType::kIq4Xs));
}

}  // namespace
}  // namespace sluice
