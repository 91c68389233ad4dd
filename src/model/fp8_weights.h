// Converts matrices from and to FP8 (E4M3), which has codes and a scale for each block of codes.
// Quantizing maps the largest magnitude of a block to 448, the largest code, and rounds to nearest
// even. Pure; any thread.
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
struct Fp8Blocks {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int32_t block_rows = 1;
  std::int32_t block_cols = 1;

  // The number of blocks in a column of blocks and in a row of blocks.
  std::int64_t down() const { return (rows + block_rows - 1) / block_rows; }
  std::int64_t across() const { return (cols + block_cols - 1) / block_cols; }
  std::size_t count() const { return static_cast<std::size_t>(down() * across()); }

  // The block size of matrices that are quantized here, equal to that of published checkpoints.
  static constexpr std::int32_t kOwnBlock = 128;
};

// The scales of a matrix that is to be quantized, in the order of BlockScales. A block of zeros
// gets 1. kInvalidArgument when an element is not finite. REQUIRES: dtype is F32, F16 or BF16.
Result<std::vector<float>> choose_scales(const std::byte* matrix, DType dtype,
                                         const Fp8Blocks& blocks, ThreadPool& pool);

// Reads the scales of a checkpoint; kInvalidArgument when one is negative or not finite.
Result<std::vector<float>> read_scales(const std::byte* source, DType dtype, std::size_t count);

// Quantizes elements [begin, begin + count) of the matrix, counted in row-major order. `matrix` is
// the start of the matrix, `target` the place of the first code.
void quantize(const std::byte* matrix, DType dtype, const Fp8Blocks& blocks,
              std::span<const float> scales, std::size_t begin, std::size_t count,
              std::byte* target);
void expand(const std::byte* codes, const Fp8Blocks& blocks, std::span<const float> scales,
            std::size_t begin, std::size_t count, std::byte* target, DType target_dtype);

// Whether any code is NaN, which no quantized weight is.
bool has_nan(std::span<const std::byte> codes);

}  // namespace sluice
