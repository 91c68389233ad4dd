// Matmul as dot products: every output is the dot product of a row of x and a row of the weight,
// accumulated in one vector whose lanes run along K and summed over lanes by one fixed tree. A tile
// of rows x columns is kept in registers, so that each load serves several outputs; tiles of all
// sizes perform the same operations on each output, so results do not depend on the tiling.
//
// The product with an FP8 weight is summed block by block: the sum over one block of scales along K
// is scaled and added to the sum of the blocks before it.
//
// The product with an INT8 weight is summed exactly, in integers, so its bits are the same on every
// instruction set (MatmulSegment).
//
// Policies with a kPass sum each kPass elements of K over lanes, and add these sums in order.
//
// Policies (Dot...) define how to load a step of K and how to multiply it into an accumulator.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// Where few rows of x take one column after the other: the lines of the weight between a fetch and
// its use. 4 KiB, about what memory delivers while one access takes.
inline constexpr std::int64_t kFewLead = 64;

// An element policy for weights that are widened when they are loaded: one element of a float dtype
// becomes one lane.
template <class S>
struct AsF32 {
  using Element = float;
  SLUICE_INLINE static typename S::F load(const float* p) { return S::load(p); }
  SLUICE_INLINE static typename S::F load(const float* p, int n) { return S::load(p, n); }
  SLUICE_INLINE static void store(float* p, typename S::F v) { S::store(p, v); }
  SLUICE_INLINE static void store(float* p, typename S::F v, int n) { S::store(p, v, n); }
  // A vector has whole elements: vector j of a transposed block becomes row j.
  static constexpr int kColumns = S::kLanes;
  SLUICE_INLINE static typename S::F load_columns(const float* p) { return S::load(p); }
  SLUICE_INLINE static typename S::F load_columns(const float* p, int n) { return S::load(p, n); }
  SLUICE_INLINE static void store_columns(float* target, int j, std::int64_t stride,
                                          typename S::F v) {
    S::store(target + j * stride, v);
  }
};
// Common to the two 16-bit types: elements are moved as bit patterns.
template <class S>
struct As16Bits {
  using Element = std::uint16_t;
  // A vector has pairs of elements: vector j of a transposed block has rows 2 j and 2 j + 1.
  static constexpr int kColumns = 2 * S::kLanes;
  SLUICE_INLINE static typename S::F load_columns(const Element* p) {
    return S::as_floats(S::load_pairs(p));
  }
  SLUICE_INLINE static typename S::F load_columns(const Element* p, int n) {
    return S::as_floats(S::load_pairs(p, n));
  }
};
template <class S>
struct AsF16 : As16Bits<S> {
  using E = std::uint16_t;
  SLUICE_INLINE static typename S::F load(const E* p) { return S::from_f16(S::load_h(p)); }
  SLUICE_INLINE static typename S::F load(const E* p, int n) {
    return S::from_f16(S::load_h(p, n));
  }
  SLUICE_INLINE static void store(E* p, typename S::F v) { S::store_h(p, S::to_f16(v)); }
  SLUICE_INLINE static void store(E* p, typename S::F v, int n) { S::store_h(p, S::to_f16(v), n); }
  SLUICE_INLINE static void store_columns(float* target, int j, std::int64_t stride,
                                          typename S::F v) {
    S::store(target + 2 * j * stride, S::even_f16(S::as_pairs(v)));
    S::store(target + (2 * j + 1) * stride, S::odd_f16(S::as_pairs(v)));
  }
};
template <class S>
struct AsBf16 : As16Bits<S> {
  using E = std::uint16_t;
  SLUICE_INLINE static typename S::F load(const E* p) { return S::from_bf16(S::load_h(p)); }
  SLUICE_INLINE static typename S::F load(const E* p, int n) {
    return S::from_bf16(S::load_h(p, n));
  }
  SLUICE_INLINE static void store(E* p, typename S::F v) { S::store_h(p, S::to_bf16(v)); }
  SLUICE_INLINE static void store(E* p, typename S::F v, int n) { S::store_h(p, S::to_bf16(v), n); }
  SLUICE_INLINE static void store_columns(float* target, int j, std::int64_t stride,
                                          typename S::F v) {
    S::store(target + 2 * j * stride, S::even(S::as_pairs(v)));
    S::store(target + (2 * j + 1) * stride, S::odd(S::as_pairs(v)));
  }
};

// FP8 (E4M3), loaded as 2^-8 times the codes' values; scale() corrects the factor.
template <class S>
struct AsF8 {
  using Element = std::uint8_t;
  static constexpr bool kScaled = true;
  SLUICE_INLINE static typename S::F load(const Element* p) { return S::from_f16(S::load_e4m3(p)); }
  SLUICE_INLINE static typename S::F load(const Element* p, int n) {
    return S::from_f16(S::load_e4m3(p, n));
  }
  SLUICE_INLINE static float scale(float of_code) { return of_code * 0x1p8F; }
};

// x in F32, the weight widened from its dtype.
template <class S, class Weight>
struct DotF32 {
  using Simd = S;
  using Sum = typename S::F;
  using X = float;
  using W = typename Weight::Element;
  using Widened = Weight;
  static constexpr bool kScaled = requires { Weight::kScaled; };
  using Vector = typename S::F;
  static constexpr int kStep = S::kLanes;
  static constexpr int kPhases = 1;
  static constexpr int kRows = S::kDotRows;  // of a register tile
  static constexpr int kCols = S::kDotCols;
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return S::load(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return Weight::load(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int n) {
    return S::load(p, n);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return Weight::load(p, n);
  }
  SLUICE_INLINE static typename S::F multiply_add(Vector x, Vector w, typename S::F sum) {
    return S::fma(x, w, sum);
  }
};

// Both in BF16, widened: the elements at even places of a step first, then those at odd places.
template <class S>
struct DotBf16 {
  static constexpr bool kScaled = false;
  using Simd = S;
  using Sum = typename S::F;
  using X = std::uint16_t;
  using W = std::uint16_t;
  using Vector = typename S::F;
  static constexpr int kStep = 2 * S::kLanes;
  static constexpr int kPhases = 2;
  static constexpr int kRows = S::kDotRows;
  static constexpr int kCols = S::kDotCols;
  template <int phase>
  SLUICE_INLINE static Vector widen(typename S::Pairs v) {
    return phase == 0 ? S::even(v) : S::odd(v);
  }
  template <int phase>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return widen<phase>(S::load_pairs(p));
  }
  template <int phase>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return widen<phase>(S::load_pairs(p));
  }
  template <int phase>
  SLUICE_INLINE static Vector load_x(const X* p, int n) {
    return widen<phase>(S::load_pairs(p, n));
  }
  template <int phase>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return widen<phase>(S::load_pairs(p, n));
  }
  SLUICE_INLINE static typename S::F multiply_add(Vector x, Vector w, typename S::F sum) {
    return S::fma(x, w, sum);
  }
};

// Both in INT8, widened to 16 bits. Rows of x have zeros behind their last element.
template <class S>
struct DotI8 {
  static constexpr bool kScaled = false;
  using Simd = S;
  using Sum = typename S::Sums;
  using X = std::int8_t;
  using W = std::int8_t;
  using Vector = typename S::Codes;
  static constexpr int kOffset = 0;  // that is added to each code of the weight
  static constexpr int kStep = S::kCodes;
  static constexpr int kPhases = 1;
  static constexpr int kRows = S::kDotRows;
  static constexpr int kCols = S::kDotCols;
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return S::load_codes(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return S::load_codes(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int) {
    return S::load_codes(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return S::load_codes(p, n);
  }
  SLUICE_INLINE static Sum multiply_add(Vector x, Vector w, Sum sum) {
    return S::add_products(x, w, sum);
  }
};

// The sum over four lanes, for four vectors at once and for one: (l0 + l2) + (l1 + l3).
SLUICE_INLINE static __m128 sum_lanes(__m128 a, __m128 b, __m128 c, __m128 d) {
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}
SLUICE_INLINE static float sum_lanes(__m128 v) {
  const __m128 pair = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

SLUICE_INLINE static __m128i sum_lanes(__m128i a, __m128i b, __m128i c, __m128i d) {
  const __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
  const __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
  return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}
SLUICE_INLINE static std::int32_t sum_lanes(__m128i v) {
  return _mm_cvtsi128_si32(sum_lanes(v, v, v, v));
}
SLUICE_INLINE static void store_four(float* p, __m128 v) { _mm_storeu_ps(p, v); }
SLUICE_INLINE static void store_four(std::int32_t* p, __m128i v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
}

// The same for a tile of four rows and six columns at once: quarter r of a vector is of row r.
template <class S>
struct SumsOfRows {
  using F = typename S::F;
  SLUICE_INLINE explicit SumsOfRows(const F (&sums)[4][6]) {
    F quarters[6];
#pragma GCC unroll 8
    for (int c = 0; c < 6; ++c) {
      quarters[c] = S::quarter_sums(sums[0][c], sums[1][c], sums[2][c], sums[3][c]);
    }
    four = S::lane_sums(quarters[0], quarters[1], quarters[2], quarters[3]);
    two = S::lane_sums(quarters[4], quarters[5], quarters[4], quarters[5]);
  }

  F four;  // of columns 0 to 3
  F two;   // of columns 4 and 5, twice
};

// The scale of a column whose elements share one.
SLUICE_INLINE static float scale_of_column(const MatmulPiece& p, std::int64_t col) {
  const std::int64_t n = p.scales.block_rows == 1 ? col : col / p.scales.block_rows;
  return p.scales.values[n * p.scales.stride];
}

// Calls call(std::integral_constant<int, n>()), where n is `count`, or `most` if there are more.
template <int most, class Call>
SLUICE_INLINE void with_count(std::int64_t count, const Call& call) {
  if constexpr (most > 1) {
    if (count < most) return with_count<most - 1>(count, call);
  }
  call(std::integral_constant<int, most>());
}

template <class P, int rows, int cols>
struct DotTile {
  using F = typename P::Sum;
  static constexpr bool kIntegers = std::is_same_v<typename P::X, std::int8_t>;
  using Lane = std::conditional_t<kIntegers, std::int32_t, float>;
  using X = typename P::X;
  using W = typename P::W;

  // One step of K (or, with a tail, its first `n` elements) for the whole tile.
  template <int phase, class... Tail>
  SLUICE_INLINE static void step(const X* const (&x)[rows], const W* const (&w)[cols],
                                 std::int64_t k, F (&sums)[rows][cols], Tail... n) {
    typename P::Vector xs[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) xs[r] = P::template load_x<phase>(x[r] + k, n...);
#pragma GCC unroll 8
    for (int c = 0; c < cols; ++c) {
      const typename P::Vector wc = P::template load_w<phase>(w[c] + k, n...);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) sums[r][c] = P::multiply_add(xs[r], wc, sums[r][c]);
    }
  }

  template <class... Tail>
  SLUICE_INLINE static void phases(const X* const (&x)[rows], const W* const (&w)[cols],
                                   std::int64_t k, F (&sums)[rows][cols], Tail... n) {
    step<0>(x, w, k, sums, n...);
    if constexpr (P::kPhases == 2) step<1>(x, w, k, sums, n...);
  }

  static constexpr int kCount = rows * cols;

  SLUICE_INLINE static void store(F (&sums)[rows][cols], const MatmulPiece& p, std::int64_t row,
                                  std::int64_t col) {
    Lane flat[kCount];
    add_lanes(sums, flat);
    store(flat, p, row, col);
  }

  // Adds to what is stored, or stores.
  SLUICE_INLINE static void add_to(F (&sums)[rows][cols], const MatmulPiece& p, std::int64_t row,
                                   std::int64_t col, bool add) {
    Lane flat[kCount];
    add_lanes(sums, flat);
    if (add) {
      const float* const out = p.out + row * p.out_stride + col;
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < cols; ++c) flat[r * cols + c] += out[r * p.out_stride + c];
      }
    }
    store(flat, p, row, col);
  }

  // The sums over lanes.
  SLUICE_INLINE static void add_lanes(F (&sums)[rows][cols], Lane (&flat)[kCount]) {
    if constexpr (rows == 4 && cols == 6 && !kIntegers && requires { P::Simd::quarter_sums; }) {
      return add_lanes_of_rows(sums, flat);
    }
    if constexpr (rows == 8 && cols == 2 && !kIntegers && requires { P::Simd::quarter_sums; }) {
      return add_lanes_of_pairs(sums, flat);
    }
#pragma GCC unroll 8
    for (int i = 0; i + 4 <= kCount; i += 4) {
      store_four(flat + i, sum_lanes(quarter(sums, i), quarter(sums, i + 1), quarter(sums, i + 2),
                                     quarter(sums, i + 3)));
    }
#pragma GCC unroll 4
    for (int i = kCount / 4 * 4; i < kCount; ++i) flat[i] = sum_lanes(quarter(sums, i));
  }

  SLUICE_INLINE static void store(const Lane (&flat)[kCount], const MatmulPiece& p,
                                  std::int64_t row, std::int64_t col) {
    float* const out = p.out + row * p.out_stride + col;
    if constexpr (kIntegers) {
      float scales[cols];
#pragma GCC unroll 8
      for (int c = 0; c < cols; ++c) {
        // Rows have a scale each, as a rule, and a division is slow.
        scales[c] = scale_of_column(p, col + c);
      }
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const QuantizedRow x = p.x_rows[row + r];
#pragma GCC unroll 8
        for (int c = 0; c < cols; ++c) {
          const std::int32_t sum = flat[r * cols + c] - P::kOffset * x.sum;
          out[r * p.out_stride + c] = static_cast<float>(sum) * (x.scale * scales[c]);
        }
      }
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < cols; ++c) out[r * p.out_stride + c] = flat[r * cols + c];
      }
    }
  }

  // Rows of the weight to prefetch meanwhile.
  struct Prefetch {
    const W* first = nullptr;
    std::int64_t stride = 0;
    int count = 0;
  };

  // While it computes, prefetches `ahead` rows of the weight, starting at row `next`.
  static void run(const MatmulPiece& p, std::int64_t row, std::int64_t col, std::int64_t next,
                  int ahead) {
    const X* x[rows];
    const W* w[cols];
    for (int r = 0; r < rows; ++r) x[r] = static_cast<const X*>(p.x) + (row + r) * p.x_stride;
    for (int c = 0; c < cols; ++c) {
      w[c] = static_cast<const W*>(p.weight) + (col + c) * p.weight_stride;
    }
    const W* prefetched = static_cast<const W*>(p.weight) + next * p.weight_stride;
    F sums[rows][cols];
    clear(sums);
    if constexpr (P::kScaled) {
      const std::int64_t block = p.scales.block_cols;
      for (std::int64_t k = 0; k < p.depth; k += block) {
        F part[rows][cols];
        clear(part);
        const std::int64_t end = k + block < p.depth ? k + block : p.depth;
        add_products(x, w, {prefetched, p.weight_stride, ahead}, k, end, part);
        for (int c = 0; c < cols; ++c) {
          const float of_code =
              p.scales.values[(col + c) / p.scales.block_rows * p.scales.stride + k / block];
          const F scale = P::Simd::set1(P::Widened::scale(of_code));
          for (int r = 0; r < rows; ++r) {
            sums[r][c] = P::Simd::fma(part[r][c], scale, sums[r][c]);
          }
        }
      }
    } else if constexpr (requires { P::kPass; }) {
      run_passes(p, x, w, {prefetched, p.weight_stride, ahead}, row, col);
      return;
    } else {
      add_products(x, w, {prefetched, p.weight_stride, ahead}, 0, p.depth, sums);
    }
    store(sums, p, row, col);
  }

  SLUICE_INLINE static void run_passes(const MatmulPiece& p, const X* const (&x)[rows],
                                       const W* const (&w)[cols], const Prefetch& prefetch,
                                       std::int64_t row, std::int64_t col) {
    // Few sums are kept, and their lanes added some passes later: nothing is computed beside that.
    constexpr int kKept = kCount <= 6 ? 8 : 1;
    F kept[kKept][rows][cols];
    std::int64_t stored = 0;  // passes
    for (std::int64_t pass = 0; pass * P::kPass < p.depth; ++pass) {
      const std::int64_t k = pass * P::kPass;
      const bool last = k + P::kPass >= p.depth;
      F sums[rows][cols];
      clear(sums);
      add_products(x, w, prefetch, k, last ? p.depth : k + P::kPass, sums);
      if constexpr (kKept == 1) {
        add_to(sums, p, row, col, pass > 0);
        continue;
      }
      copy(sums, kept[pass % kKept]);
      if (!last && pass % kKept + 1 < kKept) continue;
      for (; stored <= pass; ++stored) add_to(kept[stored % kKept], p, row, col, stored > 0);
    }
  }

  // Adds the products over [k, end) of K.
  SLUICE_INLINE static void add_products(const X* const (&x)[rows], const W* const (&w)[cols],
                                         const Prefetch& prefetch, std::int64_t k, std::int64_t end,
                                         F (&sums)[rows][cols]) {
    for (; k + P::kStep <= end; k += P::kStep) {
      for (int c = 0; c < prefetch.count; ++c) {
        const W* row = prefetch.first + c * prefetch.stride;
        prefetch_second(row + k);
      }
      phases(x, w, k, sums);
    }
    if (k < end) phases(x, w, k, sums, static_cast<int>(end - k));
  }

 private:
  SLUICE_INLINE static void clear(F (&sums)[rows][cols]) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < cols; ++c) sums[r][c] = F{};
    }
  }

  // Quarter r has the sums of rows r and r + 4.
  SLUICE_INLINE static void add_lanes_of_pairs(const F (&sums)[rows][cols], Lane (&flat)[kCount]) {
    using S = typename P::Simd;
    F quarters[2][cols];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (int c = 0; c < cols; ++c) {
        quarters[half][c] = S::quarter_sums(sums[4 * half][c], sums[4 * half + 1][c],
                                            sums[4 * half + 2][c], sums[4 * half + 3][c]);
      }
    }
    S::store_pairs_apart(
        flat, S::lane_sums(quarters[0][0], quarters[0][1], quarters[1][0], quarters[1][1]));
  }
  SLUICE_INLINE static void add_lanes_of_rows(F (&sums)[rows][cols], Lane (&flat)[kCount]) {
    using S = typename P::Simd;
    const SumsOfRows<S> all(sums);
    S::store_quarters(flat, cols, all.four);
    S::store_half_quarters(flat + 4, cols, all.two);
  }

  SLUICE_INLINE static void copy(const F (&from)[rows][cols], F (&to)[rows][cols]) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < cols; ++c) to[r][c] = from[r][c];
    }
  }

  SLUICE_INLINE static auto quarter(F (&sums)[rows][cols], int i) {
    return P::Simd::quarter_sum(sums[i / cols][i % cols]);
  }
};

// Multiplies all rows [row, row_end) of x by one tile of columns, which is read from memory once
// and stays in the nearest cache. Each pass also prefetches a part of the next tile, because rows
// of a weight are often as long as a memory page, at whose end hardware prefetching stops.
template <class P, int cols>
struct ColumnTile {
  static constexpr int kRows = P::kRows;

  static void run(const MatmulPiece& p, std::int64_t row, std::int64_t row_end, std::int64_t col,
                  bool prefetch) {
    const auto passes = static_cast<int>((row_end - row + kRows - 1) / kRows);
    const int share = (cols + passes - 1) / passes;
    std::int64_t next = col + cols;
    const std::int64_t last = prefetch ? (next + cols < p.col_end ? next + cols : p.col_end) : 0;
    while (row < row_end) {
      const std::int64_t left = last - next;
      const int ahead = left <= 0 ? 0 : left < share ? static_cast<int>(left) : share;
      row += tile(p, row, row_end, col, next, ahead);
      next += ahead;
    }
  }

 private:
  // One pass; returns its number of rows.
  static int tile(const MatmulPiece& p, std::int64_t row, std::int64_t row_end, std::int64_t col,
                  std::int64_t next, int ahead) {
    switch (row_end - row) {
      case 1: DotTile<P, 1, cols>::run(p, row, col, next, ahead); return 1;
      case 2: DotTile<P, 2, cols>::run(p, row, col, next, ahead); return 2;
      case 3: DotTile<P, 3, cols>::run(p, row, col, next, ahead); return 3;
      default: DotTile<P, kRows, cols>::run(p, row, col, next, ahead); return kRows;
    }
  }
};

template <class S>
void add_bias(const MatmulPiece& p) {
  const auto add = [&p](auto element) {
    using As = decltype(element);
    const auto* bias = static_cast<const typename As::Element*>(p.bias);
    for (std::int64_t row = p.row_begin; row < p.row_end; ++row) {
      float* out = p.out + row * p.out_stride;
      std::int64_t c = p.col_begin;
      for (; c + S::kLanes <= p.col_end; c += S::kLanes) {
        S::store(out + c, S::add(S::load(out + c), As::load(bias + c)));
      }
      const int n = static_cast<int>(p.col_end - c);
      if (n > 0) S::store(out + c, S::add(S::load(out + c, n), As::load(bias + c, n)), n);
    }
  };
  if (p.bias_dtype == DType::kF32) add(AsF32<S>());
  if (p.bias_dtype == DType::kF16) add(AsF16<S>());
  if (p.bias_dtype == DType::kBF16) add(AsBf16<S>());
}

// Rows of x that stay in the second-level cache, beside the weights of the piece.
inline constexpr std::int64_t kCachedInputBytes = 256 << 10;

template <class P>
void matmul(const MatmulPiece& p) {
  constexpr int kRows = P::kRows;
  constexpr int kCols = P::kCols;
  const std::int64_t row_bytes = p.depth * static_cast<std::int64_t>(sizeof(typename P::X));
  const std::int64_t fits = kCachedInputBytes / (row_bytes + 1) / kRows * kRows;
  const std::int64_t chunk = fits > kRows ? fits : kRows;
  for (std::int64_t row = p.row_begin; row < p.row_end; row += chunk) {
    const std::int64_t row_end = row + chunk < p.row_end ? row + chunk : p.row_end;
    const bool prefetch = row == p.row_begin;
    std::int64_t col = p.col_begin;
    for (; col + kCols <= p.col_end; col += kCols) {
      ColumnTile<P, kCols>::run(p, row, row_end, col, prefetch);
    }
    for (; col < p.col_end; ++col) ColumnTile<P, 1>::run(p, row, row_end, col, false);
  }
  if (p.bias != nullptr) add_bias<typename P::Simd>(p);
}

}  // namespace sluice::kernels
