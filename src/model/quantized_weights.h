// Converts matrices from and to quantized dtypes: those that have codes, and beside them a scale
// for each block of codes (FP8 in E4M3, INT8), and INT4, which has its scales among its codes
// (tensor/int4.h). Quantizing maps the largest magnitude of a block to the largest code, 448 or
// 127, and rounds to nearest even. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace sluice {

// The blocks of a matrix [rows, cols]; blocks at its ends may be smaller.
struct QuantizedBlocks {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int32_t block_rows = 1;
  std::int32_t block_cols = 1;
  DType codes = DType::kF8E4M3;

  // The number of blocks in a column of blocks and in a row of blocks.
  std::int64_t down() const { return (rows + block_rows - 1) / block_rows; }
  std::int64_t across() const { return (cols + block_cols - 1) / block_cols; }
  std::size_t count() const { return static_cast<std::size_t>(down() * across()); }

  // The blocks of matrices that are quantized here: FP8 in blocks of 128 by 128, like published
  // checkpoints, INT8 row by row.
  static QuantizedBlocks own(DType codes, std::int64_t rows, std::int64_t cols);
};

// The scales of a matrix that is to be quantized, in the order of BlockScales. A block of zeros
// gets 1. kInvalidArgument when an element is not finite. REQUIRES: dtype is F32, F16 or BF16.
Result<std::vector<float>> choose_scales(const std::byte* matrix, DType dtype,
                                         const QuantizedBlocks& blocks, ThreadPool& pool);

// Reads the scales of a checkpoint; kInvalidArgument when one is negative or not finite.
Result<std::vector<float>> read_scales(const std::byte* source, DType dtype, std::size_t count);

// Quantizes elements [begin, begin + count) of the matrix, counted in row-major order. `matrix` is
// the start of the matrix, `target` the place of the first code.
void quantize(const std::byte* matrix, DType dtype, const QuantizedBlocks& blocks,
              std::span<const float> scales, std::size_t begin, std::size_t count,
              std::byte* target);
void expand(const std::byte* codes, const QuantizedBlocks& blocks, std::span<const float> scales,
            std::size_t begin, std::size_t count, std::byte* target, DType target_dtype);

// Writes bytes [offset, offset + target.size()) of the matrix [rows, cols] in INT4. False if an
// element that they need is not finite or too large for its scale. Blocks that the cut splits are
// quantized again by the neighbour.
bool quantize_to_int4(const std::byte* matrix, DType dtype, std::int64_t cols, std::size_t offset,
                      std::span<std::byte> target);

// Whether any code is NaN, which no quantized weight is.
bool has_nan(std::span<const std::byte> codes);

}  // namespace sluice
