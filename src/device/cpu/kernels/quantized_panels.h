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

// The sums of a tile of rows and columns, in the output.
template <class B>
struct SumsOfTile {
  using S = typename B::Simd;

  // A tile has `width` rows, of which only the first `rows` are in the output.
  template <int width>
  SLUICE_INLINE void load(typename S::F (&sums)[width]) const {
    if (rows == width && cols == B::kCols) {
#pragma GCC unroll 16
      for (int r = 0; r < width; ++r) sums[r] = S::load(out + r * stride);
      return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) {
      sums[r] = r < rows ? S::load(out + r * stride, cols) : S::zero();
    }
  }
  template <int width>
  SLUICE_INLINE void store(const typename S::F (&sums)[width]) const {
    if (rows == width && cols == B::kCols) {
#pragma GCC unroll 16
      for (int r = 0; r < width; ++r) S::store(out + r * stride, sums[r]);
      return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) {
      if (r < rows) S::store(out + r * stride, sums[r], cols);
    }
  }

  float* out = nullptr;
  std::int64_t stride = 0;
  int rows = 0;
  int cols = 0;
};

// A copy of a part of a group, for columns at whose end memory may end, too.
template <class B, class W>
class CopiedGroup {
 public:
  static constexpr ElementBlock kBlock = block_of(W::kDType);
  static constexpr std::int64_t kBytes = W::kLines * kLineElements / kBlock.elements * kBlock.bytes;

  // `lines` of the group that begins at `first`, of `cols` columns.
  SLUICE_INLINE CopiedGroup(const std::uint8_t* first, std::int64_t stride, int cols, int lines) {
    const auto bytes = static_cast<std::size_t>(bytes_of(W::kDType, lines * kLineElements));
    for (int c = 0; c < cols; ++c) {
      __builtin_memcpy(copy_ + c * kBytes, first + c * stride, bytes);
    }
  }
  SLUICE_INLINE ColumnsOfBytes<B::kCols> columns() const { return {copy_, kBytes}; }

 private:
  alignas(64) std::uint8_t copy_[B::kCols * kBytes] = {};
};

// `B`, `W`: as in matmul_quantized.h.
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
    SumsOfTile<B> place;
    bool first = false;   // sums begin at 0
    FetchInParts& fetch;  // to be called for each two lines

    template <int width>
    SLUICE_INLINE void begin(typename B::Simd::F (&sums)[width]) const {
      if (!first) return place.load(sums);
#pragma GCC unroll 16
      for (int r = 0; r < width; ++r) sums[r] = B::Simd::zero();
    }
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
                        .x = x_.tile(tile, line),
                        .place = {.out = p_.out + row * p_.out_stride + col,
                                  .stride = p_.out_stride,
                                  .rows = rows < kRows ? static_cast<int>(rows) : kRows,
                                  .cols = cols_from(col)},
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
  static constexpr std::int64_t kGroupBytes = CopiedGroup<B, W>::kBytes;
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
      const CopiedGroup<B, W> group(first + at / W::kLines * kGroupBytes, stride_, cols, count);
      read_group(constants, group.columns(), at, count);
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
  const std::int64_t stride_;
  Panel& panel_;
};

}  // namespace sluice::kernels
