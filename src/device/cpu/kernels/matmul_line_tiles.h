// Products of many rows with weights in blocks on tile registers (AMX), with the bits that
// matmul_quantized.h has, which multiplies few rows.
//
// Codes of 16 columns (quantized_panels.h), as bytes with a sign, are right operands: [8 quads
// along K][16 columns][4]. Codes of x are left operands as they are packed (quantized_input.h). A
// product of a line is an exact sum in 32-bit integers. It is scaled and added to sums in vector
// registers while the next but one is multiplied: a load waits for the store of a tile.
//
// Included by kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include <cstdint>

#include "device/cpu/kernels/bytes_avx512.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/quantized_panels.h"
#include "device/cpu/kernels/tile_registers.h"

namespace sluice::kernels {

struct BytesOfTiles : BytesAvx512 {
  static constexpr bool kLessZeros = true;
  SLUICE_INLINE static V subtract_bytes(V a, V b) { return _mm512_sub_epi8(a, b); }
};

// `W`: of quantized_weights.h, with BytesOfTiles, whose lines have one run.
template <class W>
class LineTiles {
 public:
  static_assert(W::kRuns == 1);

  explicit LineTiles(const MatmulPiece& p) : panels_(p) {}

  // Whole tiles of rows.
  static int tiles_of(std::int64_t rows) {
    const auto whole = static_cast<int>(rows / kRows);
    return whole + (tile_width(rows % kRows) == kRows ? 1 : 0);
  }

  // REQUIRES: p.row_begin is 0. Multiplies the first `tiles` tiles of rows, which are whole.
  void run(int tiles) {
    const TileSession session([](int tile) -> TileShape {
      if (tile < kLeft) return {kTileRows, kTileRowBytes};
      if (tile % 2 == 0) return {kTileRows, kLineElements};
      return {kLineQuads, kTileRowBytes};
    });
    panels_.run(tiles, [](const Task& task, int /*width*/) { multiply(task); });
  }

 private:
  using S = Avx512;
  using F = S::F;
  using V = BytesOfTiles::V;
  using Panels = QuantizedPanels<BytesOfTiles, W>;
  using Task = typename Panels::Task;
  using Group = typename W::Group;
  static constexpr int kCols = BytesOfTiles::kCols;
  static constexpr int kRows = BytesOfTiles::kRows;
  static_assert(kCols == kTileRows && kRows == kTileRows);
  static constexpr std::int64_t kLineBytes = kRows * kLineRowBytes;
  // Registers from here on hold x and codes of a line, then of another; those before it hold sums.
  static constexpr int kLeft = 4;
  using Result = std::int32_t[kRows * kCols];
  // The bits of 1.5 * 2^23: added to an integer below 2^22, the bits of their sum.
  static constexpr std::int32_t kInteger = 0x4B400000;

  static void multiply(const Task& task) {
    F sums[kRows];
    task.begin(sums);
    const auto x_of = [&](int i) { return task.x + i * kLineBytes; };
    const auto& panel = task.panel;
    const int lines = task.lines;
    alignas(64) Result results[4];
    const auto result_of = [&](int i) -> Result& { return results[i % 4]; };
    int i = 0;
    for (; i + 2 <= lines; i += 2) {
      multiply_line<0>(x_of(i), panel.codes[i]);
      if (i > 0) {
        store_line<1>(result_of(i - 1));
        add_line(panel, i - 2, x_of(i - 2), result_of(i - 2), sums);
      }
      multiply_line<1>(x_of(i + 1), panel.codes[i + 1]);
      store_line<0>(result_of(i));
      if (i > 0) add_line(panel, i - 1, x_of(i - 1), result_of(i - 1), sums);
      task.fetch.fetch();
    }
    if (i > 0) store_line<1>(result_of(i - 1));
    if (i < lines) {
      multiply_line<0>(x_of(i), panel.codes[i]);
      store_line<0>(result_of(i));
    }
    for (i = i > 0 ? i - 2 : 0; i < lines; ++i) add_line(panel, i, x_of(i), result_of(i), sums);
    task.place.store(sums);
  }

  // Register `slot` holds the sums of a line; two lines have different operands.
  template <int slot>
  SLUICE_INLINE static void multiply_line(const std::uint8_t* x, const std::int32_t* codes) {
    constexpr int kX = kLeft + 2 * slot;
    clear_tile<slot>();
    load_tile<kX>(x + line_codes(kRows), kLineElements);
    load_tile<kX + 1>(codes, kTileRowBytes);
    Int8Products::add<slot, kX, kX + 1>();
  }
  template <int slot>
  SLUICE_INLINE static void store_line(Result& result) {
    store_tile<slot>(result, kTileRowBytes);
  }

  SLUICE_INLINE static void add_line(const typename Panels::Panel& panel, int line,
                                     const std::uint8_t* x, const Result& result,
                                     F (&sums)[kRows]) {
    const Group& group = panel.groups[line / W::kLines];
    const int of_group = line % W::kLines;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const InputLine<kRows> of_row(x, r);
      V sum = _mm512_load_si512(result + r * kCols);
      if constexpr (!W::kZerosFit) {
        sum = _mm512_add_epi32(sum, W::offset(group, of_group, 0, of_row));
      }
      // As a conversion, which only one of two units does while tiles are in use.
      sum = _mm512_add_epi32(sum, _mm512_set1_epi32(kInteger));
      const F products[1] = {_mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(0x1.8p23F))};
      sums[r] = W::add(group, of_group, products, of_row, sums[r]);
    }
  }

  Panels panels_;
};

}  // namespace sluice::kernels
