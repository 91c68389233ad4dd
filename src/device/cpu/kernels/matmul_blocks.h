// Products of x in BF16 with weights in blocks (INT4 and the types of GGUF files), which are
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

// `Blocks`: a type of widen_blocks.h. `Widening`: the instruction set that widens, which may round
// to BF16 with another instruction than P::Simd does.
template <class Blocks, class P, class Widening = typename P::Simd, class InRegisters = NoRegisters>
void matmul_blocks(const MatmulPiece& p) {
  using S = typename P::Simd;
  constexpr ElementBlock kBlock = block_of(Blocks::kDType);
  constexpr int kCols = P::kCols;
  const std::int64_t row_bytes = p.weight_stride / kBlock.elements * kBlock.bytes;
  if constexpr (!std::is_same_v<InRegisters, NoRegisters>) {
    if (p.row_end - p.row_begin <= InRegisters::kRows) {
      return matmul_in_registers<Blocks, InRegisters>(p);
    }
  }
  const std::int64_t blocks = (p.depth + kBlock.elements - 1) / kBlock.elements;
  if constexpr (std::is_same_v<P, DotBf16<S>>) {
    if (has_many_rows<S>(p)) {
      const auto fill = [&](std::int64_t col, std::int64_t cols, std::int64_t k, std::int64_t end,
                            float* to, std::int64_t stride) {
        static_assert(kManyPass % kBlock.elements == 0);
        for (std::int64_t c = 0; c < cols; ++c) {
          const auto* from = static_cast<const std::uint8_t*>(p.weight) + (col + c) * row_bytes +
                             k / kBlock.elements * kBlock.bytes;
          for (std::int64_t i = 0; i < end - k; i += kBlock.elements) {
            Blocks::template widen<Widening>(p.scratch + i,
                                             from + i / kBlock.elements * kBlock.bytes);
          }
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
  tile.weight_stride = blocks * kBlock.elements;
  tile.bias = nullptr;
  for (std::int64_t row = p.row_begin; row < p.row_end; row += chunk) {
    const std::int64_t row_end = row + chunk < p.row_end ? row + chunk : p.row_end;
    for (std::int64_t col = p.col_begin; col < p.col_end; col += kCols) {
      const std::int64_t cols = col + kCols < p.col_end ? kCols : p.col_end - col;
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto* from = static_cast<const std::uint8_t*>(p.weight) + (col + c) * row_bytes;
        for (std::int64_t b = 0; b < blocks; ++b) {
          std::uint16_t* const to = p.scratch + c * tile.weight_stride + b * kBlock.elements;
          Blocks::template widen<Widening>(to, from + b * kBlock.bytes);
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

}  // namespace sluice::kernels
