// Panels of weights in blocks: the codes and scales of a tile of columns, for some lines along K,
// read once and multiplied by all rows of x. Reading them takes as long as some rows' products.
//
// Products of a piece run panel by panel along K, so that x's lines of a panel stay in the
// second-level cache; sums wait in the output between panels, as floats. Included by
// kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include <cstdint>

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/quantized_input.h"
#include "device/cpu/kernels/quantized_weights.h"

namespace sluice::kernels {

// `B`, `W`: as in matmul_quantized.h. `Multiply`: multiplies a panel by a tile of rows.
template <class B, class W>
class QuantizedPanels {
 public:
  using V = typename B::V;
  using Group = typename W::Group;
  static constexpr int kCols = B::kCols;
  static constexpr int kRows = B::kRows;
  static constexpr int kLines = 64;  // of a panel, at most

  struct Panel {
    // Four bytes along K of each column, then the next four.
    alignas(64) std::int32_t codes[kLines][kLineQuads * kCols];
    alignas(64) Group groups[kLines / W::kLines];
  };

  // A panel and a tile of rows to multiply, and the place of the sums.
  struct Task {
    const Panel& panel;
    int lines = 0;
    const std::uint8_t* x = nullptr;  // of these lines
    float* out = nullptr;
    std::int64_t out_stride = 0;
    int rows = 0;
    int cols = 0;
    bool first = false;   // sums begin at 0
    FetchInParts& fetch;  // to be called for each two lines
  };

  explicit QuantizedPanels(const MatmulPiece& p)
      : p_(p),
        x_(p.x, p.depth, p.row_end),
        stride_(p.weight_stride / kBlock.elements * kBlock.bytes),
        panel_(*reinterpret_cast<Panel*>(p.scratch)) {}

  // Calls multiply(task, width) for the first `tiles` tiles of rows and each panel, where `width`
  // is that of the packed tile. REQUIRES: p.row_begin is 0.
  template <class Multiply>
  SLUICE_INLINE void run(int tiles, const Multiply& multiply) {
    for (std::int64_t line = 0; line < x_.lines(); line += kLines) {
      const std::int64_t left = x_.lines() - line;
      const int lines = left < kLines ? static_cast<int>(left) : kLines;
      for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kCols) {
        read(col, line, lines);
        FetchInParts next = fetch_next(col + kCols, line, tiles * (lines / 2));
        for (int tile = 0; tile < tiles; ++tile) {
          const std::int64_t row = std::int64_t{tile} * kRows;
          const std::int64_t rows = p_.row_end - row;
          multiply(Task{.panel = panel_,
                        .lines = lines,
                        .x = first_ + x_.offset(tile, line),
                        .out = p_.out + row * p_.out_stride + col,
                        .out_stride = p_.out_stride,
                        .rows = rows < kRows ? static_cast<int>(rows) : kRows,
                        .cols = cols_from(col),
                        .first = line == 0,
                        .fetch = next},
                   x_.width(tile));
        }
      }
    }
  }

 private:
  using Columns = ColumnsOfBytes<kCols>;
  static constexpr ElementBlock kBlock = block_of(W::kDType);
  static constexpr std::int64_t kGroupBytes =
      W::kLines * kLineElements / kBlock.elements * kBlock.bytes;
  static_assert(kLines % W::kLines == 0);
  static_assert(sizeof(Panel) <= kWidenedElements * sizeof(std::uint16_t));

  int cols_from(std::int64_t col) const {
    const std::int64_t left = p_.col_end - col;
    return left < kCols ? static_cast<int>(left) : kCols;
  }
  const std::uint8_t* place(std::int64_t col, std::int64_t line) const {
    return static_cast<const std::uint8_t*>(p_.weight) + col * stride_ +
           line * kLineElements / kBlock.elements * kBlock.bytes;
  }

  // Memory of the panel that is read next, in some parts.
  FetchInParts fetch_next(std::int64_t col, std::int64_t line, int parts) const {
    if (col >= p_.col_end) {
      col = p_.col_begin;
      line += kLines;
    }
    const std::int64_t left = x_.lines() - line;
    if (left <= 0 || parts == 0) return {};
    return {place(col, line), bytes_of(W::kDType, (left < kLines ? left : kLines) * kLineElements),
            stride_, cols_from(col), parts};
  }

  void read(std::int64_t col, std::int64_t line, int lines) {
    const int cols = cols_from(col);
    const std::uint8_t* const first = place(col, line);
    const typename B::Constants constants;
    Columns w(first, stride_);
    for (int at = 0; at < lines; at += W::kLines, w.step(kGroupBytes)) {
      const int count = lines - at < W::kLines ? lines - at : W::kLines;
      if (cols == kCols && count == W::kLines) {
        read_group(constants, w, at, count);
        continue;
      }
      // A copy, because memory may end behind the row.
      const auto bytes = static_cast<std::size_t>(bytes_of(W::kDType, count * kLineElements));
      alignas(64) std::uint8_t copy[kCols * kGroupBytes] = {};
      for (int c = 0; c < cols; ++c) {
        __builtin_memcpy(copy + c * kGroupBytes, first + c * stride_ + at / W::kLines * kGroupBytes,
                         bytes);
      }
      read_group(constants, Columns(copy, kGroupBytes), at, count);
    }
  }

  SLUICE_INLINE void read_group(const typename B::Constants& constants, const Columns& w, int at,
                                int count) {
    Group& group = panel_.groups[at / W::kLines];
    W::read_group(constants, w, group);
    for (int first = 0; first < count; first += W::kTogether) {
      V codes[W::kTogether][kLineQuads];
      W::read_codes(group, w, first, codes);
#pragma GCC unroll 4
      for (int i = 0; i < W::kTogether; ++i) {
        if (first + i >= count) break;
#pragma GCC unroll 8
        for (int q = 0; q < kLineQuads; ++q) {
          V bytes = codes[i][q];
          if constexpr (B::kLessZeros) {
            bytes = B::subtract_bytes(bytes, W::zeros(group, first + i));
          }
          B::store(panel_.codes[at + first + i] + q * kCols, bytes);
        }
      }
    }
  }

  const MatmulPiece& p_;
  const QuantizedInput<kRows> x_;
  const std::uint8_t* const first_ = static_cast<const std::uint8_t*>(p_.x);
  const std::int64_t stride_;
  Panel& panel_;
};

// The sums of a tile of rows and columns, in the output.
template <class S, int width, class Task>
SLUICE_INLINE void load_sums(const Task& task, int all_cols, typename S::F (&sums)[width]) {
  if (task.first) {
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) sums[r] = S::zero();
    return;
  }
  const float* const out = task.out;
  if (task.rows == width && task.cols == all_cols) {
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) sums[r] = S::load(out + r * task.out_stride);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < width; ++r) {
    sums[r] = r < task.rows ? S::load(out + r * task.out_stride, task.cols) : S::zero();
  }
}
template <class S, int width, class Task>
SLUICE_INLINE void store_sums(const Task& task, int all_cols, const typename S::F (&sums)[width]) {
  float* const out = task.out;
  if (task.rows == width && task.cols == all_cols) {
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) S::store(out + r * task.out_stride, sums[r]);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < width; ++r) {
    if (r < task.rows) S::store(out + r * task.out_stride, sums[r], task.cols);
  }
}

}  // namespace sluice::kernels
