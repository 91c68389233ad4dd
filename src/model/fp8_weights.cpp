#include "model/fp8_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "base/check.h"
#include "model/weight_conversion.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

// Elements converted at a time, through an array on the stack.
constexpr std::size_t kPiece = 1024;

// Calls visit(first, count, scale) for the runs of elements [begin, begin + count) that lie in one
// row and one block.
template <class Visit>
void for_each_run(const Fp8Blocks& blocks, std::span<const float> scales, std::size_t begin,
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

Result<std::vector<float>> choose_scales(const std::byte* matrix, DType dtype,
                                         const Fp8Blocks& blocks, ThreadPool& pool) {
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
  if (!finite) return invalid_argument("holds NaN or infinity, which cannot be quantized to FP8");
  for (float& value : largest) {
    value /= kLargestE4M3;
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

void quantize(const std::byte* matrix, DType dtype, const Fp8Blocks& blocks,
              std::span<const float> scales, std::size_t begin, std::size_t count,
              std::byte* target) {
  std::array<float, kPiece> values;
  for_each_run(blocks, scales, begin, count, [&](std::size_t at, std::size_t run, float scale) {
    load(matrix, dtype, at, run, values);
    std::byte* to = target + (at - begin);
    for (std::size_t i = 0; i < run; ++i) to[i] = std::byte{float_to_e4m3(values[i] / scale)};
  });
}

void expand(const std::byte* codes, const Fp8Blocks& blocks, std::span<const float> scales,
            std::size_t begin, std::size_t count, std::byte* target, DType target_dtype) {
  std::array<float, kPiece> values;
  for_each_run(blocks, scales, begin, count, [&](std::size_t at, std::size_t run, float scale) {
    for (std::size_t i = 0; i < run; ++i) {
      values[i] = e4m3_to_float(std::to_integer<std::uint8_t>(codes[at + i])) * scale;
    }
    convert_weights(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                    target + (at - begin) * size_of(target_dtype), target_dtype, run);
  });
}

bool has_nan(std::span<const std::byte> codes) {
  bool any = false;
  for (const std::byte code : codes) any |= (code & std::byte{0x7F}) == std::byte{0x7F};
  return any;
}

}  // namespace sluice
