// Products of many rows with weights in blocks on tile registers (AMX), with the bits that
// matmul_quantized.h has, which multiplies few rows.
//
// Codes of 16 columns are read once for all rows, as bytes with a sign, for one panel along K: they
// are right operands, [8 quads along K][16 columns][4]. Codes of x are left operands as they are
// packed (quantized_input.h). A product of a line is an exact sum in 32-bit integers. It is scaled
// and added to sums in vector registers while the next but one is multiplied: a load waits for the
// store of a tile.
//
// Sums wait in the output between panels. Included by kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include <cstdint>

#include "device/cpu/kernels/bytes_avx512.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul_quantized.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/tile_registers.h"

namespace sluice::kernels {

struct BytesOfTiles : BytesAvx512 {
  SLUICE_INLINE static V subtract_bytes(V a, V b) { return _mm512_sub_epi8(a, b); }
};

// `W`: of quantized_weights.h, with BytesOfTiles.
template <class W>
class LineTiles {
 public:
  explicit LineTiles(const MatmulPiece& p)
      : p_(p),
        x_(p.x, p.depth, p.row_end),
        stride_(p.weight_stride / kBlock.elements * kBlock.bytes),
        panel_(*reinterpret_cast<Panel*>(p.scratch)) {}

  // Whole tiles of rows.
  static int tiles_of(std::int64_t rows) {
    const auto whole = static_cast<int>(rows / kRows);
    return whole + (tile_width(rows % kRows) == kRows ? 1 : 0);
  }

  // REQUIRES: p.row_begin is 0. Multiplies the first `tiles` tiles of rows, which are whole.
  void run(int tiles) {
    const TileSession session([](int tile) -> TileShape {
      switch (tile) {
        case kLeft:
        case kLeft + 2: return {kTileRows, kRunBytes};
        case kLeft + 1:
        case kLeft + 3: return {kRunBytes / 4, kTileRowBytes};
        default: return {kTileRows, kTileRowBytes};
      }
    });
    for (std::int64_t line = 0; line < x_.lines(); line += kPanelLines) {
      const std::int64_t left = x_.lines() - line;
      const int lines = left < kPanelLines ? static_cast<int>(left) : kPanelLines;
      for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kCols) {
        read_panel(col, line, lines);
        begin_next(col + kCols, line, tiles * (lines / 2));
        for (int tile = 0; tile < tiles; ++tile) multiply(tile, col, line, lines);
      }
    }
  }

 private:
  using B = BytesOfTiles;
  using S = Avx512;
  using F = S::F;
  using V = B::V;
  using Columns = ColumnsOfBytes<B::kCols>;
  using Group = typename W::Group;
  static constexpr int kCols = B::kCols;
  static constexpr int kRows = kTileRows;
  static constexpr ElementBlock kBlock = block_of(W::kDType);
  static constexpr std::int64_t kGroupBytes =
      W::kLines * kLineElements / kBlock.elements * kBlock.bytes;
  static constexpr int kPanelLines = 64;
  static constexpr int kRunBytes = static_cast<int>(kLineElements) / W::kRuns;
  static constexpr int kLeft = 4;  // the first register of operands; those before it are sums

  // Codes and scales of 16 columns.
  struct Panel {
    alignas(64) std::uint8_t codes[kPanelLines][kLineElements * kCols];
    alignas(64) Group groups[kPanelLines / W::kLines];
  };
  static_assert(sizeof(Panel) <= kWidenedElements * sizeof(std::uint16_t));

  const std::uint8_t* place(std::int64_t col, std::int64_t line) const {
    return static_cast<const std::uint8_t*>(p_.weight) + col * stride_ +
           line * kLineElements / kBlock.elements * kBlock.bytes;
  }

  // Memory of the panel that is read next is fetched meanwhile, in some parts.
  void begin_next(std::int64_t col, std::int64_t line, int parts) {
    next_ = {};
    if (col >= p_.col_end) {
      col = p_.col_begin;
      line += kPanelLines;
    }
    const std::int64_t lines = x_.lines() - line;
    if (lines <= 0 || parts == 0) return;
    const std::int64_t cols = p_.col_end - col;
    next_ = FetchInParts(
        place(col, line),
        bytes_of(W::kDType, (lines < kPanelLines ? lines : kPanelLines) * kLineElements), stride_,
        cols < kCols ? cols : kCols, parts);
  }

  void read_panel(std::int64_t col, std::int64_t line, int lines) {
    const std::int64_t left = p_.col_end - col;
    const int cols = left < kCols ? static_cast<int>(left) : kCols;
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
        const V zeros = W::zeros(group, first + i);
#pragma GCC unroll 8
        for (int q = 0; q < kLineQuads; ++q) {
          _mm512_store_si512(panel_.codes[at + first + i] + q * kTileRowBytes,
                             B::subtract_bytes(codes[i][q], zeros));
        }
      }
    }
  }

  using Result = std::int32_t[W::kRuns][kRows * kCols];
  // The bits of 1.5 * 2^23: added to an integer below 2^22, the bits of their sum.
  static constexpr std::int32_t kInteger = 0x4B400000;

  void multiply(int tile, std::int64_t col, std::int64_t line, int lines) {
    const std::int64_t left = p_.col_end - col;
    const int cols = left < kCols ? static_cast<int>(left) : kCols;
    const std::int64_t rows_left = p_.row_end - std::int64_t{tile} * kRows;
    const int rows = rows_left < kRows ? static_cast<int>(rows_left) : kRows;
    const std::uint8_t* const x = x_.tile(tile) + line * kLineBytes;
    float* const out = p_.out + std::int64_t{tile} * kRows * p_.out_stride + col;
    F sums[kRows];
    if (line == 0) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r] = S::zero();
    } else if (rows == kRows && cols == kCols) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sums[r] = S::load(out + r * p_.out_stride);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sums[r] = r < rows ? S::load(out + r * p_.out_stride, cols) : S::zero();
      }
    }
    const auto x_of = [x](int i) { return x + i * kLineBytes; };
    alignas(64) Result results[4];
    const auto result_of = [&](int i) -> Result& { return results[i % 4]; };
    int i = 0;
    for (; i + 2 <= lines; i += 2) {
      multiply_line<0>(x_of(i), panel_.codes[i]);
      if (i > 0) {
        store_line<1>(result_of(i - 1));
        add_line(i - 2, x_of(i - 2), result_of(i - 2), sums);
      }
      multiply_line<1>(x_of(i + 1), panel_.codes[i + 1]);
      store_line<0>(result_of(i));
      if (i > 0) add_line(i - 1, x_of(i - 1), result_of(i - 1), sums);
      next_.fetch();
    }
    if (i > 0) store_line<1>(result_of(i - 1));
    if (i < lines) {
      multiply_line<0>(x_of(i), panel_.codes[i]);
      store_line<0>(result_of(i));
    }
    for (i = i > 2 ? i - 2 : 0; i < lines; ++i) add_line(i, x_of(i), result_of(i), sums);
    if (rows == kRows && cols == kCols) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) S::store(out + r * p_.out_stride, sums[r]);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        if (r < rows) S::store(out + r * p_.out_stride, sums[r], cols);
      }
    }
  }

  template <int slot>
  SLUICE_INLINE static void multiply_line(const std::uint8_t* x, const std::uint8_t* codes) {
    repeat<W::kRuns>([&](auto i) {
      constexpr int kRun = decltype(i)::value;
      constexpr int kSum = sum_of<slot, kRun>();
      // Two lines have different registers of operands.
      constexpr int kX = kLeft + 2 * (W::kRuns == 2 ? kRun : slot);
      clear_tile<kSum>();
      load_tile<kX>(x + line_codes(kRows) + kRun * kRunBytes, kLineElements);
      load_tile<kX + 1>(codes + kRun * kRunBytes * kCols, kTileRowBytes);
      Int8Products::add<kSum, kX, kX + 1>();
    });
  }
  template <int slot>
  SLUICE_INLINE static void store_line(Result& result) {
    repeat<W::kRuns>([&](auto i) {
      constexpr int kRun = decltype(i)::value;
      store_tile<sum_of<slot, kRun>()>(result[kRun], kTileRowBytes);
    });
  }
  template <int slot, int run>
  static constexpr int sum_of() {
    return slot * W::kRuns + run;
  }

  SLUICE_INLINE void add_line(int line, const std::uint8_t* x, const Result& result,
                              F (&sums)[kRows]) const {
    const Group& group = panel_.groups[line / W::kLines];
    const int of_group = line % W::kLines;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const InputLine<kRows> of_row(x, r);
      F products[W::kRuns];
#pragma GCC unroll 2
      for (int run = 0; run < W::kRuns; ++run) {
        V sum = _mm512_load_si512(result[run] + r * kCols);
        if constexpr (!W::kCentered) {
          sum = _mm512_add_epi32(sum, W::offset(group, of_group, run, of_row));
        }
        // As a conversion, which only one of two units does while tiles are in use.
        sum = _mm512_add_epi32(sum, _mm512_set1_epi32(kInteger));
        products[run] = _mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(0x1.8p23F));
      }
      sums[r] = W::add(group, of_group, products, of_row, sums[r]);
    }
  }

  static constexpr std::int64_t kLineBytes = kRows * kLineRowBytes;

  const MatmulPiece& p_;
  const QuantizedInput<kRows> x_;
  const std::int64_t stride_;
  Panel& panel_;
  FetchInParts next_;
};

}  // namespace sluice::kernels
