// Attention on tile registers (AMX), for keys and values in BF16: queries and weights are rounded
// to BF16, sums are F32. As in attention.h, tiles of keys start at multiples of kAttentionTile
// positions and a row's arithmetic depends only on its position and window: a key that it does not
// see has the weight 0. A product of 0 and a value that is not finite would show, so tiles with
// such values are computed for each row alone, without the keys that it does not see.
//
// Scores are computed as [key][row], so that the softmax has a row in each lane.
// Included by kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/matmul_tiles.h"
#include "device/cpu/kernels/tile_registers.h"

namespace sluice::kernels {

template <class S>
class TileAttention {
 public:
  using F = typename S::F;

  static bool takes(const AttentionParams& p) {
    return p.kv.dtype == DType::kBF16 && p.head_dim % 8 == 0;
  }

  // REQUIRES: takes(p).
  TileAttention(const AttentionParams& p, const AttentionPiece& piece)
      : p_(p),
        dim_(p.head_dim),
        padded_(static_cast<std::int32_t>(padded_head(p.head_dim))),
        place_(p, piece),
        row_tiles_((place_.count() + kTileRows - 1) / kTileRows) {
    const std::int64_t halves = std::int64_t{padded_} * kMaxAttentionRows;
    static_assert(kMaxAttentionRows == kAttentionTile);
    queries_ = reinterpret_cast<std::uint16_t*>(piece.scratch);
    keys_ = queries_ + halves;
    values_ = keys_ + halves;
    weights_ = values_ + halves;
    outputs_ = reinterpret_cast<float*>(weights_ + kMaxAttentionRows * kAttentionTile);
    scores_ = outputs_ + halves;
    largest_ = scores_ + kMaxAttentionRows * kAttentionTile;
    sums_ = largest_ + kMaxAttentionRows;
    factors_ = sums_ + kMaxAttentionRows;
    first_ = reinterpret_cast<std::int32_t*>(factors_ + kMaxAttentionRows);
    last_ = first_ + kMaxAttentionRows;
    // Larger heads have more room left.
    static_assert(160 * 32 + 6 * kMaxAttentionRows * kMaxAttentionRows / 4 +
                      5 * kMaxAttentionRows <=
                  attention_scratch_floats(32));
  }

  void run() {
    const TileSession session;
    load_queries();
    const std::int32_t begin = place_.first_visible(0);
    const std::int32_t end = place_.end_position();
    for (std::int32_t tile = begin / kAttentionTile * kAttentionTile; tile < end;
         tile += kAttentionTile) {
      const int low = begin > tile ? begin - tile : 0;
      const int high = end - tile < kAttentionTile ? end - tile : kAttentionTile;
      place_.find_places(tile + low, tile + high, places_ + low);
      load_keys(low, high);
      const bool finite = load_values(low, high);
      prefetch(tile + kAttentionTile, end);
      for (int t = 0; t < row_tiles_; ++t) {
        score(t, low, high);
        softmax_rows(t, tile);
        scale_outputs(t);
        if (finite) {
          weigh(t);
        } else {
          weigh_rows_alone(t, tile, low, high);
        }
      }
    }
    store_outputs();
  }

 private:
  static constexpr int kGroups = kAttentionTile / kTileRows;  // of 16 keys
  static constexpr int kDepth = 32;                           // elements of a step along K
  static constexpr int kSteps = kAttentionTile / kDepth;      // along keys
  static constexpr std::int64_t kTileHalves = kTileBytes / 2;

  void load_queries() {
    const int rows = place_.count();
    for (int r = 0; r < kMaxAttentionRows; ++r) {
      const bool real = r < rows;
      largest_[r] = -__builtin_inff();
      sums_[r] = 0.0F;
      first_[r] = real ? place_.first_visible(r) : 0;
      last_[r] = real ? place_.position_of(r) : -1;
    }
    for (int r = 0; r < rows; ++r) {
      const float* q = row_of<AsF32<S>>(p_.q, place_.token_of(r)) + place_.head_of(r) * dim_;
      std::uint16_t* query = keys_ + std::int64_t{r} * padded_;
      for_vectors<S>(padded_, [&](std::int64_t i, auto...) {
        const std::int64_t left = dim_ - i;
        const int n = left >= S::kLanes ? S::kLanes : left > 0 ? static_cast<int>(left) : 0;
        S::store_h(query + i, S::to_bf16(S::load(q + i, n)));
      });
    }
    pack_rows<S>(matrix_view(keys_, DType::kBF16, rows, padded_, padded_), rows, 0, row_tiles_,
                 queries_);
    const std::int64_t floats = std::int64_t{row_tiles_} * kTileRows * padded_;
    for (std::int64_t i = 0; i < floats; i += S::kLanes) S::store(outputs_ + i, S::zero());
  }

  // Finds the rows of each group of 16 keys: where they lie if they follow one another, or else a
  // copy, with zeros where no row sees a key.
  void load_keys(int low, int high) {
    const KvLayerView& kv = p_.kv;
    const auto* base = static_cast<const std::uint16_t*>(kv.k_base);
    const bool whole = kv.block_size % kTileRows == 0 && dim_ % kDepth == 0;
    for (int g = low / kTileRows; g * kTileRows < high; ++g) {
      const int first = g * kTileRows;
      if (whole && first >= low && first + kTileRows <= high) {
        groups_[g] = {reinterpret_cast<const std::uint8_t*>(base + places_[first]),
                      kv.token_stride * 2};
        continue;
      }
      for (int key = first; key < first + kTileRows; ++key) {
        std::uint16_t* const to = keys_ + std::int64_t{key} * padded_;
        const bool seen = key >= low && key < high;
        for (std::int32_t i = 0; i < padded_; i += kDepth) {
          const int n = !seen ? 0 : dim_ - i < kDepth ? dim_ - i : kDepth;
          _mm512_storeu_si512(
              to + i, n > 0 ? S::load_pairs(base + places_[key] + i, n) : _mm512_setzero_si512());
        }
      }
      groups_[g] = {reinterpret_cast<const std::uint8_t*>(keys_ + std::int64_t{first} * padded_),
                    std::int64_t{padded_} * 2};
    }
  }

  // Interleaves the values of pairs of keys, as right operands: tiles [step][16 dimensions]. Keys
  // outside of [low, high) are zeros. Returns whether all values are finite.
  bool load_values(int low, int high) {
    const auto* base = static_cast<const std::uint16_t*>(p_.kv.v_base);
    const __m512i exponent = _mm512_set1_epi16(0x7F80);
    const __m512i first_dims =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i last_dims = _mm512_add_epi16(first_dims, _mm512_set1_epi16(16));
    __mmask32 infinite = 0;
    const auto load = [&](int key, std::int32_t i) {
      if (key < low || key >= high) return _mm512_setzero_si512();
      const __m512i v =
          S::load_pairs(base + places_[key] + i, dim_ - i < kDepth ? dim_ - i : kDepth);
      infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(v, exponent), exponent);
      return v;
    };
    for (int key = 0; key < kAttentionTile; key += 2) {
      std::uint16_t* to = values_ + key / kDepth * value_step() + key % kDepth / 2 * kDepth;
      for (std::int32_t i = 0; i < padded_; i += kDepth, to += 2 * kTileHalves) {
        const __m512i even = load(key, i);
        const __m512i odd = load(key + 1, i);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, first_dims, odd));
        _mm512_storeu_si512(to + kTileHalves, _mm512_permutex2var_epi16(even, last_dims, odd));
      }
    }
    return infinite == 0;
  }

  // Few rows wait for memory: blocks are scattered and too short for hardware prefetching.
  void prefetch(std::int32_t begin, std::int32_t end) {
    if (row_tiles_ > 1 || begin >= end) return;
    std::int64_t places[kAttentionTile];
    const int count = end - begin < kAttentionTile ? end - begin : kAttentionTile;
    place_.find_places(begin, begin + count, places);
    for (const void* base : {p_.kv.k_base, p_.kv.v_base}) {
      const NextRows next{static_cast<const char*>(base), places, count, dim_ * 2, 2};
      for (int k = 0; k < count; ++k) next.prefetch(k);
    }
  }

  // Scores of 16 rows: [key][row].
  void score(int row_tile, int low, int high) const {
    const std::uint16_t* const queries = queries_ + row_tile * kTileRows * std::int64_t{padded_};
    float* const scores = scores_of(row_tile);
    repeat<kGroups>([&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      constexpr int kLeft = 4 + 2 * (kGroup % 2);
      if ((kGroup + 1) * kTileRows <= low || kGroup * kTileRows >= high) return;
      const LeftRows keys = groups_[kGroup];
      clear_tile<kGroup>();
      for (std::int32_t i = 0; i < padded_; i += kDepth) {
        load_tile<kLeft>(keys.first + i * 2, keys.stride);
        load_tile<kLeft + 1>(queries + i / kDepth * kTileHalves, kTileRowBytes);
        Bf16Products::add<kGroup, kLeft, kLeft + 1>();
      }
      store_tile<kGroup>(scores + kGroup * kTileRows * kTileRows, kTileRowBytes);
    });
  }

  // One step of an online softmax: weights relative to the largest score so far, and the factors by
  // which earlier sums shrink. Sums of weights go along keys, in four chains.
  void softmax_rows(int row_tile, std::int32_t tile) {
    float* const scores = scores_of(row_tile);
    const int row = row_tile * kTileRows;
    const __m512i first = _mm512_loadu_si512(first_ + row);
    const __m512i last = _mm512_loadu_si512(last_ + row);
    const F scale = S::set1(p_.scale);
    const F none = S::set1(-__builtin_inff());
    F largest = none;
    for (int key = 0; key < kAttentionTile; ++key) {
      const __m512i position = _mm512_set1_epi32(tile + key);
      const auto seen = S::both(_mm512_cmple_epi32_mask(position, last),
                                _mm512_cmple_epi32_mask(first, position));
      float* const at = scores + key * kTileRows;
      const F v = S::select(seen, S::mul(S::load(at), scale), none);
      S::store(at, v);
      largest = S::max(v, largest);
    }
    const F before = S::load(largest_ + row);
    const F now = S::max(largest, before);
    S::store(largest_ + row, now);
    // Rows that have not seen a key yet have no weights.
    const F reference = S::select(S::less(none, now), now, S::zero());
    F sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    for (int step = 0; step < kSteps; ++step) {
      F pairs[kTileRows];
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        const int key = step * kDepth + 2 * i;
        const F even = exp<S>(S::sub(S::load(scores + key * kTileRows), reference));
        const F odd = exp<S>(S::sub(S::load(scores + (key + 1) * kTileRows), reference));
        sums[2 * (i % 2)] = S::add(sums[2 * (i % 2)], even);
        sums[2 * (i % 2) + 1] = S::add(sums[2 * (i % 2) + 1], odd);
        const __m512i low = _mm512_cvtepu16_epi32(S::to_bf16(even));
        const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(S::to_bf16(odd)), 16);
        pairs[i] = S::as_floats(_mm512_or_si512(low, high));
      }
      S::transpose(pairs);
      auto* to = reinterpret_cast<float*>(weights_of(row_tile) + step * kTileHalves);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) S::store(to + i * kTileRows, pairs[i]);
    }
    const F factor = exp<S>(S::sub(before, reference));
    S::store(factors_ + row, factor);
    const F sum = S::add(S::add(sums[0], sums[2]), S::add(sums[1], sums[3]));
    S::store(sums_ + row, S::add(S::mul(S::load(sums_ + row), factor), sum));
  }

  void scale_outputs(int row_tile) {
    const int row = row_tile * kTileRows;
    const F factors = S::load(factors_ + row);
    if (_mm512_cmp_ps_mask(factors, S::set1(1.0F), _CMP_NEQ_UQ) == 0) return;
    for (int r = row; r < row + kTileRows; ++r) {
      const F factor = S::set1(factors_[r]);
      float* const output = outputs_ + std::int64_t{r} * padded_;
      for (std::int32_t i = 0; i < padded_; i += S::kLanes) {
        S::store(output + i, S::mul(S::load(output + i), factor));
      }
    }
  }

  // Adds the weighted values of a tile: to all rows, or to row `only` of the 16.
  void weigh(int row_tile, int only = -1) const {
    const std::uint16_t* const weights = weights_of(row_tile);
    float* const outputs = outputs_ + std::int64_t{row_tile} * kTileRows * padded_;
    const std::int64_t stride = std::int64_t{padded_} * 4;
    load_tile<4>(weights, kTileRowBytes);
    load_tile<5>(weights + kTileHalves, kTileRowBytes);
    for (std::int32_t i = 0; i < padded_; i += 2 * kTileRows) {
      const std::uint16_t* const values = values_ + i / kTileRows * kTileHalves;
      load_tile<0>(outputs + i, stride);
      load_tile<1>(outputs + i + kTileRows, stride);
      load_tile<6>(values, kTileRowBytes);
      Bf16Products::add<0, 4, 6>();
      load_tile<7>(values + kTileHalves, kTileRowBytes);
      Bf16Products::add<1, 4, 7>();
      load_tile<6>(values + value_step(), kTileRowBytes);
      Bf16Products::add<0, 5, 6>();
      load_tile<7>(values + value_step() + kTileHalves, kTileRowBytes);
      Bf16Products::add<1, 5, 7>();
      if (only < 0) {
        store_tile<0>(outputs + i, stride);
        store_tile<1>(outputs + i + kTileRows, stride);
      } else {
        alignas(64) float results[2][kTileRows * kTileRows];
        store_tile<0>(results[0], kTileRowBytes);
        store_tile<1>(results[1], kTileRowBytes);
        float* const output = outputs + std::int64_t{only} * padded_ + i;
        S::store(output, S::load(results[0] + only * kTileRows));
        S::store(output + kTileRows, S::load(results[1] + only * kTileRows));
      }
    }
  }

  // [low, high): the keys that any row sees.
  void weigh_rows_alone(int row_tile, std::int32_t tile, int low, int high) {
    const int first = row_tile * kTileRows;
    for (int r = 0; r < kTileRows && first + r < place_.count(); ++r) {
      load_values(place_.low_of(first + r, tile), place_.high_of(first + r, tile));
      weigh(row_tile, r);
    }
    load_values(low, high);
  }

  void store_outputs() {
    with_dtype<S>(p_.out.dtype, [&](auto out_as) {
      using Out = decltype(out_as);
      for (int r = 0; r < place_.count(); ++r) {
        const F total = S::set1(sums_[r]);
        const float* output = outputs_ + std::int64_t{r} * padded_;
        auto* out = row_of<Out>(p_.out, place_.token_of(r)) + place_.head_of(r) * dim_;
        for_vectors<S>(dim_, [&](std::int64_t i, auto... n) {
          Out::store(out + i, S::div(S::load(output + i), total), n...);
        });
      }
    });
  }

  float* scores_of(int row_tile) const { return scores_ + row_tile * kTileRows * kAttentionTile; }
  std::uint16_t* weights_of(int row_tile) const {
    return weights_ + row_tile * kTileRows * kAttentionTile;
  }
  std::int64_t value_step() const { return std::int64_t{padded_} * kDepth; }

  const AttentionParams& p_;
  const std::int32_t dim_;
  const std::int32_t padded_;
  const AttentionRows place_;
  const int row_tiles_;
  std::uint16_t* queries_;  // packed
  std::uint16_t* keys_;     // [kAttentionTile][padded]: copies
  std::uint16_t* values_;   // [step][padded / 16] tiles
  std::uint16_t* weights_;  // [row tile][step] tiles
  float* outputs_;          // [rows][padded], not yet divided by the sums
  float* scores_;           // [row tile][kAttentionTile][16]
  float* largest_;          // of each row, as what follows
  float* sums_;
  float* factors_;
  std::int32_t* first_;  // position that the row sees
  std::int32_t* last_;
  std::int64_t places_[kAttentionTile];
  LeftRows groups_[kGroups];
};

template <class S>
void attention_tiles(const AttentionParams& p, const AttentionPiece& piece) {
  if (TileAttention<S>::takes(p)) {
    TileAttention<S>(p, piece).run();
  } else {
    attention<S>(p, piece);
  }
}

}  // namespace sluice::kernels
