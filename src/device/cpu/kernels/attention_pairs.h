// Attention on units that multiply pairs of BF16, for keys and values in BF16: queries and weights
// are rounded to BF16, sums are F32. The algorithm is that of attention.h; sums go along pairs in
// order. Included by kernels_avx512_bf16.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/attention_few.h"
#include "device/cpu/kernels/simd_avx512_bf16.h"

namespace sluice::kernels {

// A word is a pair of BF16 elements: of two dimensions (queries and keys) or of two keys (weights
// and values). See WordsOfF32.
template <class S>
struct WordsOfBf16 {
  using Simd = S;
  using F = typename S::F;
  static constexpr int kElements = 2;
  using Few = FewPairs<S>;

  SLUICE_INLINE static F multiply_add(F a, F b, F c) {
    return S::add_pairs(S::as_pairs(a), S::as_pairs(b), c);
  }
  SLUICE_INLINE static void store_query(float* query, std::int64_t i, F v) {
    S::store_h(reinterpret_cast<std::uint16_t*>(query) + i, S::to_bf16(v));
  }
  template <class Kv>
  SLUICE_INLINE static void store_keys(float* target, int j, F keys) {
    S::store(target + j * kAttentionTile, keys);
  }
  // Pairs of a key that is not read have a zero.
  template <class Kv>
  SLUICE_INLINE static void load_values(const std::uint16_t* base, const std::int64_t* places,
                                        int low, int high, std::int32_t dim, float* to,
                                        std::int32_t stride) {
    for (int key = low & ~1; key < high; key += 2) {
      float* const row = to + std::int64_t{key / 2} * stride;
      for (std::int32_t i = 0; i < dim; i += kColumns) {
        const int n = dim - i < kColumns ? dim - i : kColumns;
        const auto load = [&](int of) {
          if (of < low || of >= high) return _mm512_setzero_si512();
          const std::uint16_t* const from = base + places[of] + i;
          return n == kColumns ? S::load_pairs(from) : S::load_pairs(from, n);
        };
        const __m512i even = load(key);
        const __m512i odd = load(key + 1);
        S::store(row + i, S::as_floats(S::interleave_low(even, odd)));
        S::store(row + i + S::kLanes, S::as_floats(S::interleave_high(even, odd)));
      }
    }
  }
  template <int vectors>
  SLUICE_INLINE static void store_weights(float* to, const F (&weights)[vectors]) {
    static_assert(vectors % 2 == 0);
#pragma GCC unroll 8
    for (int i = 0; i < vectors; i += 2) {
      S::store(to + i / 2 * S::kLanes, S::as_floats(S::to_pairs(weights[i], weights[i + 1])));
    }
  }

  // A word that a row sees half of is copied behind the words of a tile.
  class SeenValues {
   public:
    SLUICE_INLINE SeenValues(float* values, std::int32_t stride, int low, int high)
        : values_(values), stride_(stride), low_(low), high_(high) {
      if (low % 2 != 0) hide(low / 2, 0, 0xFFFF0000U);
      if (high % 2 != 0) hide(high / 2, 1, 0x0000FFFFU);
    }
    SLUICE_INLINE ~SeenValues() {
      if (low_ % 2 != 0) copy(low_ / 2, kCopies, ~0U);
      if (high_ % 2 != 0) copy(high_ / 2, kCopies + 1, ~0U);
    }
    SeenValues(const SeenValues&) = delete;
    SeenValues& operator=(const SeenValues&) = delete;

   private:
    static constexpr int kCopies = kAttentionTile / kElements;

    SLUICE_INLINE void hide(int word, int index, std::uint32_t mask) const {
      copy(kCopies + index, word, ~0U);
      copy(word, word, mask);
    }
    SLUICE_INLINE void copy(int to, int from, std::uint32_t mask) const {
      const __m512i bits = _mm512_set1_epi32(static_cast<int>(mask));
      for (std::int32_t i = 0; i < stride_; i += S::kLanes) {
        const F words = S::load(values_ + std::int64_t{from} * stride_ + i);
        S::store(values_ + std::int64_t{to} * stride_ + i,
                 S::as_floats(_mm512_and_si512(S::as_pairs(words), bits)));
      }
    }

    float* const values_;
    const std::int32_t stride_;
    const int low_;
    const int high_;
  };

  template <class Function>
  SLUICE_INLINE static void with_kv(DType /*kv*/, const Function& f) {
    f(AsBf16<S>());
  }

 private:
  static constexpr int kColumns = 32;
};

}  // namespace sluice::kernels
