// Attention over block tables with an online softmax.
//
// Keys are taken in tiles that lie at multiples of kAttentionTile positions. A tile's keys are
// transposed into scratch ([d][key]), so that lanes are keys and a score is accumulated along d in
// order; the output is accumulated along keys in order. What a query row sees of a tile, and with
// it every operation on the row, depends on its position and window only: not on the chunk it came
// in, not on the rows beside it, not on where blocks lie. Keys that a row may not see never enter
// its arithmetic, so nothing leaks from padding, stale blocks or later tokens, not even NaN.
//
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/exp.h"
#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/rows.h"

namespace sluice::kernels {

// c = factor * c + a b for a tile of rows x (vectors * lanes), k in [k_begin, k_end). Where
// `factor` is null c starts from zero.
template <class S, int rows, int vectors>
SLUICE_INLINE void gemm_tile(const float* a, std::int64_t a_stride, const float* b,
                             std::int64_t b_stride, float* c, std::int64_t c_stride,
                             const float* factor, int k_begin, int k_end) {
  using F = typename S::F;
  F sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sums[r][v] = factor == nullptr
                       ? S::zero()
                       : S::mul(S::load(c + r * c_stride + v * S::kLanes), S::set1(factor[r]));
    }
  }
  for (int k = k_begin; k < k_end; ++k) {
    F bs[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) bs[v] = S::load(b + k * b_stride + v * S::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const F ar = S::set1(a[r * a_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[r][v] = S::fma(ar, bs[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) S::store(c + r * c_stride + v * S::kLanes, sums[r][v]);
  }
}

template <class S, int rows>
void gemm_rows(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
               float* c, std::int64_t c_stride, int num_vectors, const float* factor, int k_begin,
               int k_end) {
  constexpr int kWide = S::kGemmVectors;
  constexpr int kWidth = kWide * S::kLanes;
  for (; num_vectors >= kWide; num_vectors -= kWide, b += kWidth, c += kWidth) {
    gemm_tile<S, rows, kWide>(a, a_stride, b, b_stride, c, c_stride, factor, k_begin, k_end);
  }
  for (; num_vectors > 0; --num_vectors, b += S::kLanes, c += S::kLanes) {
    gemm_tile<S, rows, 1>(a, a_stride, b, b_stride, c, c_stride, factor, k_begin, k_end);
  }
}

template <int count>
struct Count {
  static constexpr int kValue = count;
};

// The same for any number of rows.
template <class S>
void gemm(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
          std::int64_t c_stride, int num_rows, int num_vectors, const float* factor, int k_begin,
          int k_end) {
  static_assert(S::kGemmRows >= 4 && S::kGemmRows < 8);
  const auto step = [&](auto rows) {
    constexpr int kCount = decltype(rows)::kValue;
    gemm_rows<S, kCount>(a, a_stride, b, b_stride, c, c_stride, num_vectors, factor, k_begin,
                         k_end);
    a += kCount * a_stride;
    c += kCount * c_stride;
    if (factor != nullptr) factor += kCount;
    num_rows -= kCount;
  };
  while (num_rows >= S::kGemmRows) step(Count<S::kGemmRows>());
  if (num_rows >= 4) step(Count<4>());
  if (num_rows >= 2) step(Count<2>());
  if (num_rows >= 1) step(Count<1>());
}

template <class S>
class AttentionRun {
 public:
  using F = typename S::F;

  AttentionRun(const AttentionParams& p, const AttentionPiece& piece)
      : p_(p),
        piece_(piece),
        dim_(p.head_dim),
        padded_(static_cast<std::int32_t>(padded_head(p.head_dim))),
        rows_(piece.num_queries * piece.num_heads) {
    keys_ = piece.scratch;
    values_ = keys_ + std::int64_t{padded_} * kAttentionTile;
    queries_ = values_ + std::int64_t{padded_} * kAttentionTile;
    outputs_ = queries_ + std::int64_t{padded_} * kMaxAttentionRows;
    scores_ = outputs_ + std::int64_t{padded_} * kMaxAttentionRows;
    largest_ = scores_ + std::int64_t{kMaxAttentionRows} * kAttentionTile;
    sums_ = largest_ + kMaxAttentionRows;
    factors_ = sums_ + kMaxAttentionRows;
    const std::int32_t first_token = p.cu_seqlens_q[piece.seq];
    token_ = first_token + piece.first_query;
    const std::int32_t query_len = p.cu_seqlens_q[piece.seq + 1] - first_token;
    position_ = p.seq_lens[piece.seq] - query_len + piece.first_query;
    table_ = p.block_tables + p.row_slots[piece.seq] * p.table_stride;
  }

  void run() {
    load_queries();
    const std::int32_t begin = first_visible(0);
    const std::int32_t end = position_ + piece_.num_queries;
    for (std::int32_t tile = begin / kAttentionTile * kAttentionTile; tile < end;
         tile += kAttentionTile) {
      const int low = begin > tile ? begin - tile : 0;
      const int high = end - tile < kAttentionTile ? end - tile : kAttentionTile;
      with_dtype<S>(p_.kv.dtype, [&](auto kv_as) { load_tile<decltype(kv_as)>(tile, low, high); });
      score_tile(low, high);
      for (int r = 0; r < rows_; ++r) soften_row(r, tile);
      weigh_tile(tile);
    }
    store_outputs();
  }

 private:
  // Rows are ordered by query token, then by head.
  std::int32_t position_of(int row) const { return position_ + row / piece_.num_heads; }
  std::int32_t first_visible(int row) const {
    const std::int32_t first = position_of(row) - p_.window + 1;
    return p_.window > 0 && first > 0 ? first : 0;
  }
  // What a row sees of a tile: keys [low, high); high <= low for nothing.
  int low_of(int row, std::int32_t tile) const {
    const std::int32_t first = first_visible(row);
    return first > tile ? first - tile : 0;
  }
  int high_of(int row, std::int32_t tile) const {
    const std::int32_t end = position_of(row) + 1;
    return end - tile < kAttentionTile ? end - tile : kAttentionTile;
  }

  void load_queries() {
    for (int r = 0; r < rows_; ++r) {
      const float* q = row_of<AsF32<S>>(p_.q, token_ + r / piece_.num_heads) +
                       std::int64_t{piece_.first_head + r % piece_.num_heads} * dim_;
      float* query = queries_ + std::int64_t{r} * padded_;
      float* output = outputs_ + std::int64_t{r} * padded_;
      for_vectors<S>(dim_, [&](std::int64_t i, auto... n) {
        S::store(query + i, S::load(q + i, n...), n...);
      });
      for (std::int32_t i = 0; i < padded_; i += S::kLanes) S::store(output + i, S::zero());
      largest_[r] = -__builtin_inff();
      sums_[r] = 0.0F;
    }
  }

  // Where, in elements, key or value of a position begins.
  SLUICE_INLINE std::int64_t place_of(std::int32_t position) const {
    const KvLayerView& kv = p_.kv;
    return table_[position / kv.block_size] * kv.block_stride + piece_.kv_head * kv.head_stride +
           position % kv.block_size * kv.token_stride;
  }

  // Keys transposed, values as rows; widened to F32. Keys outside [low, high) are zero in the
  // vectors that are used at all, and their values are not touched.
  template <class Kv>
  void load_tile(std::int32_t tile, int low, int high) {
    const auto* k_base = static_cast<const typename Kv::Element*>(p_.kv.k_base);
    const auto* v_base = static_cast<const typename Kv::Element*>(p_.kv.v_base);
    std::int64_t places[kAttentionTile];
    for (int key = low; key < high; ++key) {
      places[key] = place_of(tile + key);
      const auto* v = v_base + places[key];
      float* row = values_ + std::int64_t{key} * padded_;
      for_vectors<S>(dim_,
                     [&](std::int64_t i, auto... n) { S::store(row + i, Kv::load(v + i, n...)); });
    }
    for (int first = low / S::kLanes * S::kLanes; first < high; first += S::kLanes) {
      for_vectors<S>(dim_, [&](std::int64_t d, auto... n) {
        F block[S::kLanes];
        for (int j = 0; j < S::kLanes; ++j) {
          const int key = first + j;
          block[j] =
              key >= low && key < high ? Kv::load(k_base + places[key] + d, n...) : S::zero();
        }
        S::transpose(block);
        for (int j = 0; j < S::kLanes; ++j) {
          S::store(keys_ + (d + j) * kAttentionTile + first, block[j]);
        }
      });
    }
  }

  void score_tile(int low, int high) {
    const int first = low / S::kLanes * S::kLanes;
    const int num_vectors = (high - first + S::kLanes - 1) / S::kLanes;
    gemm<S>(queries_, padded_, keys_ + first, kAttentionTile, scores_ + first, kAttentionTile,
            rows_, num_vectors, nullptr, 0, dim_);
  }

  // Turns a row's scores of a tile into weights relative to the largest score so far, and notes by
  // what factor earlier sums shrink.
  void soften_row(int row, std::int32_t tile) {
    const int low = low_of(row, tile);
    const int high = high_of(row, tile);
    if (high <= low) return;
    constexpr int kVectors = kAttentionTile / S::kLanes;
    const F scale = S::set1(p_.scale);
    const F none = S::set1(-__builtin_inff());
    float* scores = scores_ + std::int64_t{row} * kAttentionTile;
    F v[kVectors];
    F largest = none;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const typename S::Mask seen = lanes_between(low - i * S::kLanes, high - i * S::kLanes);
      v[i] = S::select(seen, S::mul(S::load(scores + i * S::kLanes), scale), none);
      largest = S::max(v[i], largest);
    }
    const float before = largest_[row];
    const float now = S::max_lane(largest);
    const float reference = now > before ? now : before;
    F sum = S::zero();
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const F weight = exp<S>(S::sub(v[i], S::set1(reference)));
      S::store(scores + i * S::kLanes, weight);
      sum = S::add(sum, weight);
    }
    const float factor = lane_exp(before - reference);
    largest_[row] = reference;
    factors_[row] = factor;
    sums_[row] = sums_[row] * factor + sum_lanes(S::quarter_sum(sum));
  }

  // Adds the weighted values of a tile, for rows that see the same keys together.
  void weigh_tile(std::int32_t tile) {
    for (int row = 0; row < rows_;) {
      const int low = low_of(row, tile);
      const int high = high_of(row, tile);
      int end = row + 1;
      while (end < rows_ && low_of(end, tile) == low && high_of(end, tile) == high) ++end;
      if (high > low) {
        gemm<S>(scores_ + std::int64_t{row} * kAttentionTile, kAttentionTile, values_, padded_,
                outputs_ + std::int64_t{row} * padded_, padded_, end - row,
                (dim_ + S::kLanes - 1) / S::kLanes, factors_ + row, low, high);
      }
      row = end;
    }
  }

  void store_outputs() {
    with_dtype<S>(p_.out.dtype, [&](auto out_as) {
      using Out = decltype(out_as);
      for (int r = 0; r < rows_; ++r) {
        const F total = S::set1(sums_[r]);
        const float* output = outputs_ + std::int64_t{r} * padded_;
        auto* out = row_of<Out>(p_.out, token_ + r / piece_.num_heads) +
                    std::int64_t{piece_.first_head + r % piece_.num_heads} * dim_;
        for_vectors<S>(dim_, [&](std::int64_t i, auto... n) {
          Out::store(out + i, S::div(S::load(output + i), total), n...);
        });
      }
    });
  }

  SLUICE_INLINE static int clamp(int n) { return n < 0 ? 0 : n > S::kLanes ? S::kLanes : n; }
  SLUICE_INLINE static typename S::Mask lanes_between(int low, int high) {
    return S::without(S::first(clamp(high)), S::first(clamp(low)));
  }
  SLUICE_INLINE static float lane_exp(float x) {
    float lanes[S::kLanes];
    S::store(lanes, exp<S>(S::set1(x)));
    return lanes[0];
  }

  const AttentionParams& p_;
  const AttentionPiece& piece_;
  const std::int32_t dim_;
  const std::int32_t padded_;
  const int rows_;
  float* keys_;     // [D][kAttentionTile]
  float* values_;   // [kAttentionTile][padded]
  float* queries_;  // [rows][padded]
  float* outputs_;  // [rows][padded], not yet divided by the sums
  float* scores_;   // [rows][kAttentionTile], then weights
  float* largest_;  // [rows]
  float* sums_;     // [rows]
  float* factors_;  // [rows]
  std::int32_t token_;
  std::int32_t position_;  // of the first query
  const std::int32_t* table_;
};

template <class S>
void attention(const AttentionParams& p, const AttentionPiece& piece) {
  AttentionRun<S>(p, piece).run();
}

}  // namespace sluice::kernels
