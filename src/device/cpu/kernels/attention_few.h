// Scores and weighted values of one query token, whose few heads share keys and values in BF16.
// Reading these is all that a decode waits for. So keys and values are not copied to scratch
// memory first: keys are transposed in registers, and values are multiplied two keys at a time.
// Sums are those of attention_pairs.h with the same bits: a score adds pairs along d in order, an
// output adds pairs of keys in order.
//
// `S`: the instruction set, with products of pairs of BF16. Included by kernels_avx512_bf16.cpp
// only; see simd_avx512.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// Rows of keys or values of a tile, of which [low, high) are read. Places are in elements from
// `base` on.
struct FewTile {
  const std::uint16_t* base = nullptr;
  const std::int64_t* places = nullptr;
  const std::int64_t* next_places = nullptr;  // kAttentionTile, which are fetched meanwhile
  int low = 0;
  int high = 0;
  std::int32_t dim = 0;
};

template <class S>
class FewPairs {
 public:
  using F = typename S::F;
  using Tile = FewTile;
  // The most rows, which are heads.
  static constexpr int kRows = 8;

  // scores[row][key] of keys [low, high); those of other keys may be any numbers. `queries`: rows
  // of words, `stride` apart.
  static void score(const FewTile& keys, const float* queries, std::int64_t stride, int rows,
                    float* scores) {
    const auto run = [&](auto whole) {
      constexpr bool kWhole = decltype(whole)::value;
      if (rows == 1) return score<kWhole, 1, 4>(keys, queries, stride, rows, scores);
      if (rows == 2) return score<kWhole, 2, 4>(keys, queries, stride, rows, scores);
      if (rows <= 4) return score<kWhole, 4, 4>(keys, queries, stride, rows, scores);
      score<kWhole, kRows, 1>(keys, queries, stride, rows, scores);
    };
    is_whole(keys) ? run(std::true_type()) : run(std::false_type());
  }

  // outputs[row] = factors[row] * outputs[row] + the weighted values. `weights`: rows of
  // kAttentionTile floats, which begin with words. Outputs are `stride` apart.
  static void weigh(const FewTile& values, const float* weights, const float* factors, int rows,
                    float* outputs, std::int64_t stride) {
    const auto run = [&](auto whole) {
      constexpr bool kWhole = decltype(whole)::value;
      if (rows == 1) return weigh<kWhole, 1, 4>(values, weights, factors, rows, outputs, stride);
      if (rows == 2) return weigh<kWhole, 2, 4>(values, weights, factors, rows, outputs, stride);
      if (rows <= 4) return weigh<kWhole, 4, 2>(values, weights, factors, rows, outputs, stride);
      weigh<kWhole, kRows, 1>(values, weights, factors, rows, outputs, stride);
    };
    is_whole(values) ? run(std::true_type()) : run(std::false_type());
  }

 private:
  static constexpr int kLine = 2 * S::kLanes;  // elements
  static constexpr int kHalf = S::kLanes;

  // Whole tiles need no masks.
  SLUICE_INLINE static bool is_whole(const FewTile& tile) {
    return tile.low == 0 && tile.high == kAttentionTile && tile.dim % kLine == 0;
  }

  // A line of a row from element d on.
  template <bool whole>
  SLUICE_INLINE static __m512i load(const FewTile& tile, int row, std::int64_t d) {
    prefetch_second(tile.base + tile.next_places[row] + d);
    if constexpr (whole) {
      return S::load_pairs(tile.base + tile.places[row] + d);
    } else {
      if (row < tile.low || row >= tile.high) return _mm512_setzero_si512();
      const std::uint16_t* const from = tile.base + tile.places[row] + d;
      return d + kLine <= tile.dim ? S::load_pairs(from)
                                   : S::load_pairs(from, static_cast<int>(tile.dim - d));
    }
  }

  // Fetches rows of the next tile beside those that were fetched with [begin, end) of this one.
  SLUICE_INLINE static void fetch_rest(const FewTile& tile, int begin, int end) {
    for (int row = 0; row < kAttentionTile; ++row) {
      if (row >= begin && row < end) continue;
      for (std::int64_t d = 0; d < tile.dim; d += kLine) {
        prefetch_second(tile.base + tile.next_places[row] + d);
      }
    }
  }

  // `blocks` times 16 keys at a time: while the sums of one block wait for each other, the next
  // block is transposed. Rows behind the last one are the first row again.
  template <bool whole, int rows, int blocks>
  static void score(const FewTile& keys, const float* queries, std::int64_t stride, int used,
                    float* scores) {
    const float* row_of[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) row_of[r] = queries + (r < used ? r : 0) * stride;
    const int begin = whole ? 0 : keys.low / S::kLanes * S::kLanes;
    const int end = whole ? kAttentionTile : keys.high;
    for (int first = begin; first < end; first += blocks * S::kLanes) {
      F sums[blocks][rows];
#pragma GCC unroll 4
      for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sums[b][r] = S::zero();
      }
      for (std::int64_t d = 0; d < keys.dim; d += kHalf) {
#pragma GCC unroll 4
        for (int b = 0; b < blocks; ++b) {
          const int key = first + b * S::kLanes;
          if (whole || key < end) add_products<whole>(keys, key, d, row_of, sums[b]);
        }
      }
#pragma GCC unroll 4
      for (int b = 0; b < blocks; ++b) {
        const int key = first + b * S::kLanes;
        if (key >= kAttentionTile) break;
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          if (r == used) break;
          S::store(scores + std::int64_t{r} * kAttentionTile + key, sums[b][r]);
        }
      }
    }
    if constexpr (!whole) fetch_rest(keys, begin, (end + S::kLanes - 1) / S::kLanes * S::kLanes);
  }

  // Half a line along d of 16 keys: sums wait for so few products before them that the core
  // meanwhile computes those of other blocks.
  template <bool whole, int rows>
  SLUICE_INLINE static void add_products(const FewTile& keys, int first, std::int64_t d,
                                         const float* const (&row_of)[rows], F (&sums)[rows]) {
    const int half = d % kLine == 0 ? 0 : kHalf / 2;
#pragma GCC unroll 8
    for (int j = 0; j < kHalf / 2; ++j) {
      prefetch_second(keys.base + keys.next_places[first + half + j] + d / kLine * kLine);
    }
    const auto pair = [&](int key) {
      return _mm512_inserti64x4(_mm512_castsi256_si512(load_half<whole>(keys, first + key, d)),
                                load_half<whole>(keys, first + key + 4, d), 1);
    };
    F low[4];
    F high[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      low[j] = S::as_floats(pair(j));
      high[j] = S::as_floats(pair(8 + j));
    }
    S::transpose_lanes(low);
    S::transpose_lanes(high);
    const std::int64_t left = (keys.dim - d) / 2;
#pragma GCC unroll 8
    for (int w = 0; w < 8; ++w) {
      if (!whole && w == left) break;
      const F word = w < 4 ? _mm512_shuffle_f32x4(low[w % 4], high[w % 4], 0x88)
                           : _mm512_shuffle_f32x4(low[w % 4], high[w % 4], 0xDD);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const F query = S::set1(row_of[r][d / 2 + w]);
        sums[r] = S::add_pairs(S::as_pairs(word), S::as_pairs(query), sums[r]);
      }
    }
  }

  template <bool whole>
  SLUICE_INLINE static __m256i load_half(const FewTile& tile, int row, std::int64_t d) {
    // Only rows that are read have a place.
    if (!whole && (row < tile.low || row >= tile.high)) return _mm256_setzero_si256();
    const std::uint16_t* const from = tile.base + tile.places[row] + d;
    if (whole) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const std::int64_t left = tile.dim - d;
    return _mm256_maskz_loadu_epi16(
        static_cast<__mmask16>(left < kHalf ? (1U << left) - 1U : 0xFFFFU), from);
  }

  // `lines` of the values at a time.
  template <bool whole, int rows, int lines>
  static void weigh(const FewTile& values, const float* weights, const float* factors, int used,
                    float* outputs, std::int64_t stride) {
    std::int64_t d = 0;
    for (; d + lines * kLine <= values.dim; d += lines * kLine) {
      weigh_lines<whole, rows, lines>(values, d, weights, factors, used, outputs, stride);
    }
    for (; d < values.dim; d += kLine) {
      weigh_lines<whole, rows, 1>(values, d, weights, factors, used, outputs, stride);
    }
    if constexpr (!whole) fetch_rest(values, values.low & ~1, (values.high + 1) & ~1);
  }

  template <bool whole, int rows, int lines>
  SLUICE_INLINE static void weigh_lines(const FewTile& values, std::int64_t d, const float* weights,
                                        const float* factors, int used, float* outputs,
                                        std::int64_t stride) {
    F sums[rows][2 * lines];
    const float* row_of[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const int row = r < used ? r : 0;
      row_of[r] = weights + std::int64_t{row} * kAttentionTile;
#pragma GCC unroll 8
      for (int v = 0; v < 2 * lines; ++v) {
        sums[r][v] =
            S::mul(S::load(outputs + row * stride + d + v * S::kLanes), S::set1(factors[row]));
      }
    }
    const int begin = whole ? 0 : values.low & ~1;
    const int end = whole ? kAttentionTile : values.high;
    for (int key = begin; key < end; key += 2) {
#pragma GCC unroll 4
      for (int i = 0; i < lines; ++i) {
        const __m512i even = load<whole>(values, key, d + i * kLine);
        const __m512i odd = load<whole>(values, key + 1, d + i * kLine);
        const __m512i low = S::interleave_low(even, odd);
        const __m512i high = S::interleave_high(even, odd);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const __m512i weight = S::as_pairs(S::set1(row_of[r][key / 2]));
          sums[r][2 * i] = S::add_pairs(low, weight, sums[r][2 * i]);
          sums[r][2 * i + 1] = S::add_pairs(high, weight, sums[r][2 * i + 1]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      if (r == used) break;
#pragma GCC unroll 8
      for (int v = 0; v < 2 * lines; ++v) {
        S::store(outputs + r * stride + d + v * S::kLanes, sums[r][v]);
      }
    }
  }
};

}  // namespace sluice::kernels
