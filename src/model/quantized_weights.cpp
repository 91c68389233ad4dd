#include "model/quantized_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/weight_conversion.h"
#include "tensor/float8.h"
#include "tensor/half.h"
#include "tensor/int4.h"

namespace sluice {
namespace {

constexpr std::int64_t kFp8Block = 128;

float largest_code(DType codes) { return codes == DType::kI8 ? 127.0F : kLargestE4M3; }

std::byte code_of(DType codes, float value) {
  if (codes == DType::kF8E4M3) return std::byte{float_to_e4m3(value)};
  // Rounding of the scale may take the largest element past the largest code.
  const float code = std::clamp(round_to_even(value), -127.0F, 127.0F);
  return static_cast<std::byte>(static_cast<std::int8_t>(code));
}

float value_of(DType codes, std::byte code) {
  if (codes == DType::kF8E4M3) return e4m3_to_float(std::to_integer<std::uint8_t>(code));
  return static_cast<float>(static_cast<std::int8_t>(code));
}

// Elements converted at a time, through an array on the stack.
constexpr std::size_t kPiece = 1024;

// Calls visit(first, count, scale) for the runs of elements [begin, begin + count) that lie in one
// row and one block.
template <class Visit>
void for_each_run(const QuantizedBlocks& blocks, std::span<const float> scales, std::size_t begin,
                  std::size_t count, const Visit& visit) {
  const auto cols = static_cast<std::size_t>(blocks.cols);
  const auto block_cols = static_cast<std::size_t>(blocks.block_cols);
  for (std::size_t at = begin; at < begin + count;) {
    const std::size_t row = at / cols;
    const std::size_t col = at % cols;
    const std::size_t block_end = std::min(cols, (col / block_cols + 1) * block_cols);
    const std::size_t run = std::min({block_end - col, begin + count - at, kPiece});
    const std::size_t block = row / static_cast<std::size_t>(blocks.block_rows) *
                                  static_cast<std::size_t>(blocks.across()) +
                              col / block_cols;
    visit(at, run, scales[block]);
    at += run;
  }
}

void load(const std::byte* matrix, DType dtype, std::size_t first, std::size_t count,
          std::array<float, kPiece>& values) {
  convert_weights(matrix + first * size_of(dtype), dtype,
                  reinterpret_cast<std::byte*>(values.data()), DType::kF32, count);
}

}  // namespace

QuantizedBlocks QuantizedBlocks::own(DType codes, std::int64_t rows, std::int64_t cols) {
  CHECK(has_scales(codes));
  const auto clamped = [](std::int64_t dim) {
    return static_cast<std::int32_t>(std::min(dim, kFp8Block));
  };
  if (codes == DType::kI8) return {rows, cols, 1, static_cast<std::int32_t>(cols), codes};
  return {rows, cols, clamped(rows), clamped(cols), codes};
}

Result<std::vector<float>> choose_scales(const std::byte* matrix, DType dtype,
                                         const QuantizedBlocks& blocks, ThreadPool& pool) {
  std::vector<float> largest(blocks.count(), 0.0F);
  std::atomic<bool> finite = true;
  const auto across = static_cast<std::size_t>(blocks.across());
  pool.parallel_for(static_cast<int>(blocks.down()), [&](int task) {
    const std::int64_t first = std::int64_t{task} * blocks.block_rows;
    const std::int64_t last = std::min(blocks.rows, first + blocks.block_rows);
    const auto cols = static_cast<std::size_t>(blocks.cols);
    const std::span<float> row_of_blocks =
        std::span(largest).subspan(static_cast<std::size_t>(task) * across, across);
    std::array<float, kPiece> values;
    for_each_run(blocks, largest, static_cast<std::size_t>(first) * cols,
                 static_cast<std::size_t>(last - first) * cols,
                 [&](std::size_t at, std::size_t count, float) {
                   load(matrix, dtype, at, count, values);
                   float& most =
                       row_of_blocks[at % cols / static_cast<std::size_t>(blocks.block_cols)];
                   float sum = 0.0F;  // not finite where an element is not
                   for (std::size_t i = 0; i < count; ++i) {
                     most = std::max(most, std::abs(values[i]));
                     sum += values[i] * 0.0F;
                   }
                   if (!std::isfinite(sum)) finite.store(false, std::memory_order_relaxed);
                 });
  });
  if (!finite) {
    return invalid_argument(fmt::format("holds NaN or infinity, which cannot be quantized to {}",
                                        dtype_name(blocks.codes)));
  }
  for (float& value : largest) {
    value /= largest_code(blocks.codes);
    if (value == 0.0F) value = 1.0F;  // the elements are too small for a scale and become zero
  }
  return largest;
}

Result<std::vector<float>> read_scales(const std::byte* source, DType dtype, std::size_t count) {
  std::vector<float> scales(count);
  convert_weights(source, dtype, reinterpret_cast<std::byte*>(scales.data()), DType::kF32, count);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(scales[i]) && scales[i] >= 0) continue;
    return invalid_argument(
        fmt::format("scale {} is {}; expected a finite number of at least 0", i, scales[i]));
  }
  return scales;
}

void quantize(const std::byte* matrix, DType dtype, const QuantizedBlocks& blocks,
              std::span<const float> scales, std::size_t begin, std::size_t count,
              std::byte* target) {
  std::array<float, kPiece> values;
  for_each_run(blocks, scales, begin, count, [&](std::size_t at, std::size_t run, float scale) {
    load(matrix, dtype, at, run, values);
    std::byte* to = target + (at - begin);
    for (std::size_t i = 0; i < run; ++i) to[i] = code_of(blocks.codes, values[i] / scale);
  });
}

void expand(const std::byte* codes, const QuantizedBlocks& blocks, std::span<const float> scales,
            std::size_t begin, std::size_t count, std::byte* target, DType target_dtype) {
  std::array<float, kPiece> values;
  for_each_run(blocks, scales, begin, count, [&](std::size_t at, std::size_t run, float scale) {
    for (std::size_t i = 0; i < run; ++i) {
      values[i] = value_of(blocks.codes, codes[at + i]) * scale;
    }
    convert_weights(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                    target + (at - begin) * size_of(target_dtype), target_dtype, run);
  });
}

bool quantize_to_int4(const std::byte* matrix, DType dtype, std::int64_t cols, std::size_t offset,
                      std::span<std::byte> target) {
  constexpr float kLargestElement = 0x1p18F;
  const auto width = static_cast<std::size_t>(cols);
  const std::size_t blocks_of_row = (width + kInt4Elements - 1) / kInt4Elements;
  const std::size_t end = offset + target.size();
  bool fits = true;
  for (std::size_t block = offset / kInt4Bytes; block * kInt4Bytes < end; ++block) {
    const std::size_t row = block / blocks_of_row;
    const std::size_t col = block % blocks_of_row * kInt4Elements;
    std::array<float, kInt4Elements> values{};
    convert_weights(matrix + (row * width + col) * size_of(dtype), dtype,
                    reinterpret_cast<std::byte*>(values.data()), DType::kF32,
                    std::min(kInt4Elements, width - col));
    for (float& value : values) {
      if (std::abs(value) <= kLargestElement) continue;
      fits = false;
      value = 0.0F;
    }
    const Int4Block codes = quantize_int4(values);
    const std::size_t first = std::max(offset, block * kInt4Bytes);
    const std::size_t last = std::min(end, (block + 1) * kInt4Bytes);
    std::memcpy(target.data() + (first - offset), codes.data() + (first - block * kInt4Bytes),
                last - first);
  }
  return fits;
}

bool has_nan(std::span<const std::byte> codes) {
  bool any = false;
  for (const std::byte code : codes) any |= (code & std::byte{0x7F}) == std::byte{0x7F};
  return any;
}

}  // namespace sluice
