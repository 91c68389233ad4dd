#include "tensor/gguf_blocks.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

// Codes, scale and minimum give the elements.
TEST(BlockLine, HasTheElementsOfTheBlock) {
  SplitMix64 rng(1);
  for (const DType dtype : kBlockDTypes) {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(bytes_of(dtype, 512)));
    for (std::uint8_t& byte : row) byte = static_cast<std::uint8_t>(rng.below(60));
    for (std::int64_t line = 0; line < 16; ++line) {
      const BlockLine parts = block_line(dtype, row.data(), line);
      for (std::int64_t i = 0; i < 32; ++i) {
        const auto code = static_cast<float>(parts.codes[static_cast<std::size_t>(i)]);
        const float element = block_element(dtype, row.data(), 32 * line + i);
        const auto run = static_cast<float>(parts.minimum_runs[static_cast<std::size_t>(i / 16)]);
        EXPECT_FLOAT_EQ(parts.scale * code - parts.minimum * run, element)
            << dtype_name(dtype) << ", line " << line << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
