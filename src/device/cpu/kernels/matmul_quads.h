// Products of INT8 with vpdpbusd, which adds four products of bytes to each lane of 32 bits. Sums
// are exact, so bits are those of DotI8.
//
// `S`: an instruction set with the instruction: Bytes, kBytes of them in a vector, load_bytes(),
// flip_signs() and add_quads(). Included by kernels_*_vnni.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// Four products of INT8 a lane. The instruction takes one factor without a sign, so 128 is added to
// the codes of the weight and taken off their sum.
template <class S>
struct DotI8Quads {
  static constexpr bool kScaled = false;
  using Simd = S;
  using Sum = typename S::Sums;
  using X = std::int8_t;
  using W = std::int8_t;
  using Vector = typename S::Bytes;
  static constexpr int kOffset = 128;
  static constexpr int kStep = S::kBytes;
  static constexpr int kPhases = 1;
  static constexpr int kRows = S::kQuadsRows;
  static constexpr int kCols = S::kQuadsCols;
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return S::load_bytes(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return S::flip_signs(S::load_bytes(p));
  }
  // Rows of x have zeros behind their last element.
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int) {
    return S::load_bytes(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return S::flip_signs(S::load_bytes(p, n));
  }
  SLUICE_INLINE static Sum multiply_add(Vector x, Vector w, Sum sum) {
    return S::add_quads(w, x, sum);
  }
};

// The most rows of x that take one column of the weight after the other, and their elements: they
// stay in the first-level cache, and memory is slower than their products.
inline constexpr std::int64_t kQuadsColumnRows = 4;
inline constexpr std::int64_t kQuadsColumnElements = 32 << 10;

// All rows of a piece, `rows` of them, by its columns in the order in which they lie in memory: a
// core reads one run of lines faster than several side by side (matmul_in_place.h).
template <class S, int rows>
void multiply_columns(const MatmulPiece& p) {
  using P = DotI8Quads<S>;
  using Tile = DotTile<P, rows, 1>;
  constexpr std::int64_t kLine = 64;  // codes, and bytes
  constexpr std::int64_t kLead = kFewLead * kLine;
  constexpr int kLineSteps = kLine / P::kStep;
  // A single sum would wait for its last product.
  constexpr int kLines = rows <= 2 ? 2 : 1;
  constexpr int kSums = kLines * kLineSteps;
  const typename P::X* x[rows];
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const typename P::X*>(p.x) + (p.row_begin + r) * p.x_stride;
  }
  const auto* const weight = static_cast<const typename P::W*>(p.weight);
  const typename P::W* const weight_end = weight + (p.col_end - 1) * p.weight_stride + p.depth;
  for (std::int64_t col = p.col_begin; col < p.col_end; ++col) {
    const typename P::W* const w[1] = {weight + col * p.weight_stride};
    typename P::Sum sums[kSums][rows][1] = {};
    std::int64_t k = 0;
    for (; k + kLines * kLine <= p.depth; k += kLines * kLine) {
#pragma GCC unroll 4
      for (int s = 0; s < kSums; ++s) {
        const std::int64_t at = k + s * P::kStep;
        if (s % kLineSteps == 0 && weight_end - w[0] > at + kLead) {
          prefetch_near(w[0] + at + kLead);
        }
        Tile::phases(x, w, at, sums[s]);
      }
    }
    for (; k + P::kStep <= p.depth; k += P::kStep) Tile::phases(x, w, k, sums[0]);
    if (k < p.depth) Tile::phases(x, w, k, sums[0], static_cast<int>(p.depth - k));
#pragma GCC unroll 4
    for (int s = 1; s < kSums; ++s) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[0][r][0] += sums[s][r][0];
    }
    Tile::store(sums[0], p, p.row_begin, col);
  }
}

SLUICE_INLINE static bool takes_columns(const MatmulPiece& p) {
  const std::int64_t rows = p.row_end - p.row_begin;
  return rows <= kQuadsColumnRows && rows * p.depth <= kQuadsColumnElements;
}

template <class S>
void matmul_quads(const MatmulPiece& p) {
  if (!takes_columns(p)) return matmul<DotI8Quads<S>>(p);
  switch (p.row_end - p.row_begin) {
    case 1: multiply_columns<S, 1>(p); break;
    case 2: multiply_columns<S, 2>(p); break;
    case 3: multiply_columns<S, 3>(p); break;
    default: multiply_columns<S, 4>(p); break;
  }
  if (p.bias != nullptr) add_bias<S>(p);
}

}  // namespace sluice::kernels
