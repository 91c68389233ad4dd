// Rows of a weight as the left operand of tile products (matmul_tiles.h): where they lie in the
// checkpoint, or else in scratch memory, widened to BF16 in the cache.
//
// A type of weight has the Element of its operand, whether that lies in place, place() and stride()
// of rows in the checkpoint, and put_rows(p, col, count, k, depth, to): it writes the elements
// [k, k + depth) of rows [col, col + count); up to the next whole tile, a row's elements become
// zeros or are multiplied by zeros. Included by kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/tile_registers.h"
#include "device/cpu/kernels/widen_f8.h"

namespace sluice::kernels {

// Bytes of K of one pass over many tokens: the rows of x of a pass stay in the second-level cache.
inline constexpr std::int64_t kPassBytes = 4096;
// The same over few tokens, of weights in scratch memory: two passes of 16 rows and one of 16
// tokens stay in the first-level cache. Short passes mix widening, which waits for memory, with
// products.
inline constexpr std::int64_t kFewPassBytes = 512;

// Rows in scratch memory, tile by tile along K: [tile][row][kTileRowBytes]. So the lines of a tile
// lie in different sets of a cache.
struct ScratchRows {
  std::uint8_t* first = nullptr;
  std::int64_t step = 0;  // bytes between the tiles of a row
};

SLUICE_INLINE static __mmask64 first_bytes(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1U;
}

// Elements of a weight that are read where they lie.
template <class E>
struct InPlace {
  using Element = E;
  static constexpr bool kInPlace = true;
  static const std::uint8_t* place(const MatmulPiece& p, std::int64_t col, std::int64_t k) {
    return reinterpret_cast<const std::uint8_t*>(static_cast<const Element*>(p.weight) +
                                                 col * p.weight_stride + k);
  }
  static std::int64_t stride(const MatmulPiece& p) {
    return p.weight_stride * static_cast<std::int64_t>(sizeof(Element));
  }
  // Copies what is left of the rows.
  static void put_rows(const MatmulPiece& p, std::int64_t col, int count, std::int64_t k,
                       std::int64_t depth, const ScratchRows& to) {
    const std::int64_t bytes = depth * static_cast<std::int64_t>(sizeof(Element));
    for (int r = 0; r < count; ++r) {
      const std::uint8_t* const from = place(p, col + r, k);
      std::uint8_t* line = to.first + r * kTileRowBytes;
      for (std::int64_t i = 0; i < bytes; i += kTileRowBytes, line += to.step) {
        _mm512_storeu_si512(line, _mm512_maskz_loadu_epi8(first_bytes(bytes - i), from + i));
      }
    }
  }
};

// Codes of FP8 (E4M3): an element is the code's value times its scale, rounded to BF16.
// `S`: the instruction set, of which no shared code may be linked elsewhere.
template <class S>
struct WidenedF8 {
  using Element = std::uint16_t;
  static constexpr bool kInPlace = false;
  static const std::uint8_t* place(const MatmulPiece& p, std::int64_t col, std::int64_t k) {
    return static_cast<const std::uint8_t*>(p.weight) + col * p.weight_stride + k;
  }
  static std::int64_t stride(const MatmulPiece& p) { return p.weight_stride; }
  static void put_rows(const MatmulPiece& p, std::int64_t col, int count, std::int64_t k,
                       std::int64_t depth, const ScratchRows& to) {
    if (p.scales.block_cols % 32 == 0 || p.scales.block_cols >= p.depth) {
      widen_rows(p, col, count, k, depth, {to.first, kTileRowBytes, to.step});
    } else {
      const Target linear{to.first + 2 * kTileRows * kPassBytes, kPassBytes + kTileRowBytes,
                          kTileRowBytes};
      widen_rows(p, col, count, k, depth, linear);
      for (int r = 0; r < count; ++r) {
        for (std::int64_t i = 0; i < depth; i += 32) {
          _mm512_storeu_si512(to.first + r * kTileRowBytes + i / 32 * to.step,
                              _mm512_loadu_si512(linear.at(r, i)));
        }
      }
    }
    const auto left = static_cast<__mmask32>(~std::uint64_t{0} << depth % 32);
    if (depth % 32 == 0) return;
    std::uint8_t* const last = to.first + depth / 32 * to.step;
    for (int r = 0; r < count; ++r) {
      _mm512_mask_storeu_epi16(last + r * kTileRowBytes, left, _mm512_setzero_si512());
    }
  }

 private:
  // Where element i of row r is written. REQUIRES: a block of scales begins where a line of 32
  // elements begins, or lines lie one after the other.
  struct Target {
    std::uint8_t* first = nullptr;
    std::int64_t row_bytes = 0;
    std::int64_t step = 0;  // bytes between lines

    SLUICE_INLINE std::uint16_t* at(std::int64_t r, std::int64_t i) const {
      return reinterpret_cast<std::uint16_t*>(first + r * row_bytes + i / 32 * step) + i % 32;
    }
  };

  // Rows of one block share its table. Rows are read one after the other, as memory likes it, with
  // the tables of some blocks along K at hand.
  static void widen_rows(const MatmulPiece& p, std::int64_t col, int count, std::int64_t k,
                         std::int64_t depth, const Target& to) {
    constexpr int kTables = kPassBytes / 2 / 128 + 1;  // blocks of 128 in a pass, and one more
    const std::int64_t block = p.scales.block_cols;
    const std::int64_t end = k + depth;
    // Few tokens wait for memory: the codes that are widened next are fetched meanwhile.
    constexpr std::int64_t kAhead = 256;
    const std::int64_t ahead =
        end + kAhead <= p.depth ? kAhead : kAhead + (kTileRows - 1) * stride(p);
    for (std::int64_t begin = k; begin < end;) {
      const std::int64_t first_block = begin / block;
      const std::int64_t behind = (first_block + kTables) * block;
      const std::int64_t next = behind < end ? behind : end;
      typename WidenF8<S>::Table tables[kTables];
      const float* last = nullptr;
      for (int r = 0; r < count; ++r) {
        const float* const scales =
            p.scales.values + (col + r) / p.scales.block_rows * p.scales.stride + first_block;
        const std::uint8_t* const codes = place(p, col + r, 0);
        std::int64_t border = (first_block + 1) * block;
        int index = 0;
        for (std::int64_t at = begin; at < next; ++index, border += block) {
          const std::int64_t stop = border < next ? border : next;
          if (scales != last) tables[index] = WidenF8<S>::table_of(scales[index]);
          const std::uint8_t* const upcoming = codes + at + ahead;
          const auto fetch = [upcoming](std::int64_t i) { prefetch_second(upcoming + i); };
          WidenF8<S>::widen(tables[index], codes + at, stop - at, to.at(r, at - k), to.step / 2,
                            fetch);
          at = stop;
        }
        last = scales;
      }
      begin = next;
    }
  }
};

}  // namespace sluice::kernels
