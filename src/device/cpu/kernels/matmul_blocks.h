// Products of x in BF16 with weights in blocks except INT4 (see matmul_int4.h), which are
// widened to BF16 and multiplied as those are, with the same bits. Rows of x share a tile of
// columns that is widened once, to scratch memory in the cache. Where an instruction set can widen
// a block in registers, a few rows of x do so while they multiply it. Included by
// kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul_many.h"
#include "device/cpu/kernels/widen_blocks.h"

namespace sluice::kernels {

// Blocks are widened in registers by a policy whose step is one block.
struct NoRegisters {};

template <class Blocks, class InRegisters>
void matmul_in_registers(const MatmulPiece& p) {
  constexpr ElementBlock kBlock = block_of(Blocks::kDType);
  MatmulPiece few = p;
  few.weight_stride = p.weight_stride / kBlock.elements * kBlock.bytes;
  matmul<InRegisters>(few);
}

// Columns in blocks. `S` widens, which may round to BF16 with another instruction than that of the
// products.
template <class S, class Blocks>
class ColumnsOfBlocks {
 public:
  static constexpr ElementBlock kBlock = block_of(Blocks::kDType);
  static_assert(kManyPass % kBlock.elements == 0);
  explicit ColumnsOfBlocks(const MatmulPiece& p)
      : weight_(static_cast<const std::uint8_t*>(p.weight)),
        row_bytes_(p.weight_stride / kBlock.elements * kBlock.bytes) {}

  SLUICE_INLINE void fill(std::int64_t col, std::int64_t k, std::int64_t end,
                          std::uint16_t* to) const {
    const std::uint8_t* from = weight_ + col * row_bytes_ + k / kBlock.elements * kBlock.bytes;
    for (; k < end; k += kBlock.elements, from += kBlock.bytes, to += kBlock.elements) {
      Blocks::template widen<S>(to, from);
    }
  }

 private:
  const std::uint8_t* const weight_;
  const std::int64_t row_bytes_;
};

// Products with a weight that `source` widens: fill(col, k, end, to) writes elements [k, end) of a
// column in BF16, and what fills up the last block; k is a multiple of kManyPass, and at most so
// many elements follow.
template <class P, class Source>
SLUICE_INLINE void matmul_widened(const MatmulPiece& p, Source& source) {
  using S = typename P::Simd;
  constexpr std::int64_t kGranule = 256;  // a multiple of every block's elements
  constexpr int kCols = P::kCols;
  if constexpr (std::is_same_v<P, DotBf16<S>>) {
    if (has_many_rows(p, kManyBlockRows, kManyBlockDepth)) {
      const auto fill = [&](std::int64_t col, std::int64_t cols, std::int64_t k, std::int64_t end,
                            float* to, std::int64_t stride) {
        for (std::int64_t c = 0; c < cols; ++c) {
          source.fill(col + c, k, end, p.scratch);
          widen_row<S>(p.scratch, end - k, to + c * stride);
        }
      };
      const auto nothing = [](auto...) {};
      ManyRows<S, decltype(fill), decltype(nothing)>(p, fill, nothing).run();
      if (p.bias != nullptr) add_bias<S>(p);
      return;
    }
  }
  const std::int64_t fits = 2 * kCachedInputBytes / (2 * p.depth) / P::kRows * P::kRows;
  const std::int64_t chunk = fits > P::kRows ? fits : P::kRows;
  MatmulPiece tile = p;
  tile.weight = p.scratch;
  tile.weight_stride = (p.depth + kGranule - 1) / kGranule * kGranule;
  tile.bias = nullptr;
  for (std::int64_t row = p.row_begin; row < p.row_end; row += chunk) {
    const std::int64_t row_end = row + chunk < p.row_end ? row + chunk : p.row_end;
    for (std::int64_t col = p.col_begin; col < p.col_end; col += kCols) {
      const std::int64_t cols = col + kCols < p.col_end ? kCols : p.col_end - col;
      for (std::int64_t k = 0; k < p.depth; k += kManyPass) {
        const std::int64_t end = k + kManyPass < p.depth ? k + kManyPass : p.depth;
        for (std::int64_t c = 0; c < cols; ++c) {
          source.fill(col + c, k, end, p.scratch + c * tile.weight_stride + k);
        }
      }
      tile.out = p.out + col;
      tile.col_begin = 0;
      tile.col_end = cols;
      if (cols == kCols) {
        ColumnTile<P, kCols>::run(tile, row, row_end, 0, false);
      } else {
        for (std::int64_t c = 0; c < cols; ++c) ColumnTile<P, 1>::run(tile, row, row_end, c, false);
      }
    }
  }
  if (p.bias != nullptr) add_bias<S>(p);
}

// `Blocks`: a type of widen_blocks.h. `Widening`: the instruction set that widens.
template <class Blocks, class P, class Widening = typename P::Simd, class InRegisters = NoRegisters>
void matmul_blocks(const MatmulPiece& p) {
  if constexpr (!std::is_same_v<InRegisters, NoRegisters>) {
    if (p.row_end - p.row_begin <= InRegisters::kRows) {
      return matmul_in_registers<Blocks, InRegisters>(p);
    }
  }
  ColumnsOfBlocks<Widening, Blocks> source(p);
  matmul_widened<P>(p, source);
}

}  // namespace sluice::kernels
