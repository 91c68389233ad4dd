// out += scale * (h B^T) for some tokens that share an adapter. B is stored transposed, one row per
// rank, so that lanes run along columns. Every element is one chain of multiply-adds along ranks,
// from 0, then one multiply-add into out, for tiles of all sizes.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/rows.h"

namespace sluice::kernels {

// Computes a tile of `rows` tokens by `vectors` vectors of columns; with `n`, the last vector has
// only n columns. `h`: kMaxLoraRank floats a row.
template <class S, class B, int rows, int vectors, class... Tail>
SLUICE_INLINE void lora_tile(const LoraExpandPiece& p, const float* h, float* const (&out)[rows],
                             std::int64_t col, Tail... n) {
  using F = typename S::F;
  // Rows of B are longer than a memory page, at whose end hardware prefetching stops.
  constexpr std::int64_t kAhead = 8 * S::kLanes * vectors;
  F sums[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums[i][v] = S::zero();
  }
  const auto* b = static_cast<const typename B::Element*>(p.b) + col;
  for (std::int32_t r = 0; r < p.rank; ++r, b += p.b_stride) {
    if constexpr (vectors > 1) prefetch_near(b + kAhead);
    F hs[rows];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) hs[i] = S::set1(h[i * LoraTable::kMaxRank + r]);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const F bv = B::load(b + v * S::kLanes, n...);
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) sums[i][v] = S::fma(hs[i], bv, sums[i][v]);
    }
  }
  const F scale = S::set1(p.scale);
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      float* to = out[i] + col + v * S::kLanes;
      S::store(to, S::fma(scale, sums[i][v], S::load(to, n...)), n...);
    }
  }
}

template <class S, class B, int rows>
void lora_rows(const LoraExpandPiece& p, std::int32_t first) {
  constexpr int kVectors = 4;
  // The sums over parts, in order.
  float h[rows * LoraTable::kMaxRank];
  float* out[rows];
  for (int i = 0; i < rows; ++i) {
    out[i] = p.out + p.tokens[first + i] * p.out_stride;
    const float* from = p.h + (first + i) * p.h_stride;
    float* to = h + i * LoraTable::kMaxRank;
    for_vectors<S>(p.rank, [&](std::int64_t r, auto... n) {
      typename S::F sum = S::load(from + r, n...);
      for (std::int32_t part = 1; part < p.parts; ++part) {
        sum = S::add(sum, S::load(from + part * p.part_stride + r, n...));
      }
      S::store(to + r, sum, n...);
    });
  }
  std::int64_t col = p.col_begin;
  for (; col + kVectors * S::kLanes <= p.col_end; col += kVectors * S::kLanes) {
    lora_tile<S, B, rows, kVectors>(p, h, out, col);
  }
  for (; col + S::kLanes <= p.col_end; col += S::kLanes) {
    lora_tile<S, B, rows, 1>(p, h, out, col);
  }
  if (col < p.col_end) {
    lora_tile<S, B, rows, 1>(p, h, out, col, static_cast<int>(p.col_end - col));
  }
}

template <class S>
void lora_expand(const LoraExpandPiece& p) {
  constexpr int kRows = 3;  // of a tile; with 4 vectors they fill 16 registers
  with_dtype<S>(p.dtype, [&](auto as) {
    using B = decltype(as);
    std::int32_t i = 0;
    for (; i + kRows <= p.count; i += kRows) lora_rows<S, B, kRows>(p, i);
    for (; i < p.count; ++i) lora_rows<S, B, 1>(p, i);
  });
}

}  // namespace sluice::kernels
