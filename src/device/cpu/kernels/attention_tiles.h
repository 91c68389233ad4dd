// Attention on tile registers (AMX), for keys and values in BF16: queries and weights are rounded
// to BF16, sums are F32. As in attention.h, tiles of keys start at multiples of kAttentionTile
// positions and a row's arithmetic depends only on its position and window: a key that it does not
// see has the weight 0. A product of 0 and a value that is not finite would show, so tiles with
// such values are computed for each row alone, without the keys that it does not see.
//
// Scores are computed as [key][row], so that the softmax has a row in each lane. Their exponentials
// have powers of two as a base, and errors below a hundredth of what BF16 rounds away.
// Included by kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/matmul_tiles.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/tile_registers.h"

namespace sluice::kernels {

// 2^x for x of at most 1, within 4e-6 of it; 0 below 2^-126, NaN for NaN. Lanes outside of `lanes`
// are 0.
SLUICE_INLINE __m512 power_of_two(__m512 x, __mmask16 lanes) {
  // Minimax on [0, 1], exact at both ends.
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 power = _mm512_set1_ps(0.013555747F);
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.05203237F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.24137976F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(0.69303212F));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(1.0F));
  const __mmask16 normal = _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(normal, power, x);
}

// Fetches the keys and values of the next tile into the second-level cache while this one is
// computed. Memory takes longer to answer than a tile takes to compute, and a core waits for a
// few lines at a time only, so fetches are spread over the whole computation: kSlots of them.
class NextTile {
 public:
  static constexpr int kSlots = 128;

  // No next tile.
  SLUICE_INLINE void clear() { lines_ = 0; }
  // A tile of `count` rows; the caller has written their `places`.
  SLUICE_INLINE void begin(const KvLayerView& kv, int count, std::int32_t row_bytes) {
    const auto* const keys = static_cast<const char*>(kv.k_base);
    line_ = keys;
    to_values_ = static_cast<const char*>(kv.v_base) - keys;
    row_bytes_ = row_bytes;
    key_ = 0;
    at_ = 0;
    lines_ = count * ((row_bytes + 63) / 64);
    share_ = (lines_ + kSlots - 1) / kSlots;
    // One line of each page of 4 KiB, so that translations of addresses are looked up together.
    for (int key = 0; key < count; key += kTileRows) fetch_line(key, 0);
  }
  template <int slots>
  SLUICE_INLINE void fetch() {
    if (lines_ == 0) return;
    fetch_lines(slots * share_);
  }
  SLUICE_INLINE void finish() { fetch_lines(lines_); }

  std::int64_t places[kAttentionTile];

 private:
  SLUICE_INLINE void fetch_lines(int most) {
    int count = most < lines_ ? most : lines_;
    lines_ -= count;
    for (; count > 0; --count) {
      fetch_line(key_, at_);
      at_ += 64;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      ++key_;
    }
  }
  SLUICE_INLINE void fetch_line(int key, std::int32_t at) const {
    const char* const line = line_ + places[key] * 2 + at;
    prefetch_second(line);
    prefetch_second(line + to_values_);
  }

  const char* line_ = nullptr;
  std::int64_t to_values_ = 0;
  std::int32_t row_bytes_ = 0;
  int key_ = 0;
  std::int32_t at_ = 0;
  int lines_ = 0;  // of keys, that are left; each comes with one of values
  int share_ = 0;  // of a slot
};

template <class S>
class TileAttention {
 public:
  using F = typename S::F;
  struct PowerOfTwo {
    SLUICE_INLINE static F of(F x) { return power_of_two(x, 0xFFFF); }
  };

  // REQUIRES: in_bf16(p).
  TileAttention(const AttentionParams& p, const AttentionPiece& piece)
      : p_(p),
        dim_(p.head_dim),
        padded_(static_cast<std::int32_t>(padded_head(p.head_dim))),
        scale_(p.scale * 1.44269504F),
        piece_(piece),
        place_(p, piece),
        totals_(piece, p.head_dim),
        row_tiles_((place_.count() + kTileRows - 1) / kTileRows) {
    queries_ = reinterpret_cast<std::uint16_t*>(piece.scratch);
    keys_ = queries_ + std::int64_t{padded_} * kMaxAttentionRows;
    values_ = keys_ + std::int64_t{padded_} * kMaxAttentionRows;
    weights_ = values_ + std::int64_t{padded_} * kAttentionTile;
    outputs_ = reinterpret_cast<float*>(weights_ + kTileRows * kAttentionTile);
    scores_ = outputs_ + std::int64_t{padded_} * kMaxAttentionRows;
    largest_ = scores_ + std::int64_t{2} * kTileRows * kAttentionTile;
    sums_ = largest_ + kMaxAttentionRows;
    factors_ = sums_ + kMaxAttentionRows;
    first_ = reinterpret_cast<std::int32_t*>(factors_ + kMaxAttentionRows);
    last_ = first_ + kMaxAttentionRows;
    static_assert(kMaxAttentionRows >= kAttentionTile);  // keys_ also holds the queries at first
    // Larger heads have more room left.
    static_assert(32 * (2 * kMaxAttentionRows + kAttentionTile / 2) +
                      kTileRows * kAttentionTile * 5 / 2 + 5 * kMaxAttentionRows +
                      span_sums_floats(kMaxAttentionRows, 32) <=
                  attention_scratch_floats(32));
  }

  void run() {
    const TileSession session;
    load_queries();
    totals_.add_keys(*this);
    if (piece_.spans == nullptr) store_outputs();
  }

  void add_spans() {
    totals_.add_stored();
    store_outputs();
  }

 private:
  // The rows of a group of 16 keys.
  struct KeyRows {
    const std::uint8_t* first = nullptr;
    std::int64_t stride = 0;  // bytes between rows
  };

  friend class AttentionTotals<S, PowerOfTwo>;  // clear_sums(), add_tile(), sums_of()

  static constexpr int kGroups = kAttentionTile / kTileRows;  // of 16 keys
  static constexpr int kDepth = 32;                           // elements of a step along K
  static constexpr int kSteps = kAttentionTile / kDepth;      // along keys
  static constexpr std::int64_t kTileHalves = kTileBytes / 2;
  static constexpr int kOutputFloats = kTileRows * kTileRows;  // of 16 dimensions

  void load_queries() {
    const int rows = place_.count();
    for (int r = 0; r < kMaxAttentionRows; ++r) {
      const bool real = r < rows;
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
  }

  // Outputs are not cleared: the first tile writes them (outputs_written_).
  void clear_sums() {
    for (int r = 0; r < kMaxAttentionRows; r += S::kLanes) {
      S::store(largest_ + r, S::set1(-__builtin_inff()));
      S::store(sums_ + r, S::zero());
    }
    outputs_written_ = false;
  }

  void add_tile(std::int32_t tile, int low, int high) {
    place_.find_places(tile + low, tile + high, places_ + low);
    begin_next(tile + kAttentionTile);
    load_keys(low, high);
    const bool finite = load_values(low, high);
    for (int t = 0; t < row_tiles_; ++t) {
      if (t % 2 == 0) score_two(t, low, high);
      if (sees_all(t, tile)) {
        softmax_rows<true>(t, tile);
      } else {
        softmax_rows<false>(t, tile);
      }
      if (outputs_written_) {
        scale_outputs(t);
      } else if (!finite) {
        clear_outputs(t);  // rows of it are written one by one
      }
      if (finite) {
        weigh(t, outputs_written_);
      } else {
        weigh_rows_alone(t, tile, low, high);
      }
    }
    outputs_written_ = true;
    next_.finish();
  }

  RowSums sums_of(int row) const {
    const float* const first = outputs_of(row / kTileRows) + row % kTileRows * kTileRows;
    return {{first, kTileRows}, largest_[row], sums_[row]};
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
  // outside of [low, high) are zeros. Two tiles hold 32 dimensions: the first tile has the first
  // half of each eight, the second tile the rest. Returns whether all values are finite.
  bool load_values(int low, int high) {
    const auto* base = static_cast<const std::uint16_t*>(p_.kv.v_base);
    if (low == 0 && high == kAttentionTile && dim_ == padded_) {
      return interleave_values(
          [&](int key, std::int32_t i) { return _mm512_loadu_si512(base + places_[key] + i); });
    }
    return interleave_values([&](int key, std::int32_t i) {
      if (key < low || key >= high) return _mm512_setzero_si512();
      return S::load_pairs(base + places_[key] + i, dim_ - i < kDepth ? dim_ - i : kDepth);
    });
  }

  template <class Load>
  SLUICE_INLINE bool interleave_values(const Load& load) {
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    __m512i largest = _mm512_setzero_si512();
    for (int key = 0; key < kAttentionTile; key += 2) {
      std::uint16_t* to = values_ + key / kDepth * value_step() + key % kDepth / 2 * kDepth;
      for (std::int32_t i = 0; i < padded_; i += kDepth, to += 2 * kTileHalves) {
        const __m512i even = load(key, i);
        const __m512i odd = load(key + 1, i);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(even, magnitude));
        largest = _mm512_max_epu16(largest, _mm512_and_si512(odd, magnitude));
        _mm512_storeu_si512(to, _mm512_unpacklo_epi16(even, odd));
        _mm512_storeu_si512(to + kTileHalves, _mm512_unpackhi_epi16(even, odd));
      }
      next_.fetch<1>();
    }
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7F80)) == 0;
  }

  // Few rows wait for memory: blocks are scattered and too short for hardware prefetching.
  void begin_next(std::int32_t begin) {
    if (row_tiles_ > 1) return next_.clear();
    next_.begin(p_.kv, place_.find_next(begin, next_.places), dim_ * 2);
  }

  // Scores of 32 rows with a tile of keys, or of 16 if there are no more. Groups of keys are read
  // once for both tiles of rows. Four sums at a time hide the latency of a product.
  void score_two(int row_tile, int low, int high) {
    if (row_tile + 1 == row_tiles_) return score_rows(row_tile, low, high);
    for (int g = 0; g < kGroups; g += 2) {
      const bool first = seen_group(g, low, high);
      const bool second = seen_group(g + 1, low, high);
      if (first || second) score_pairs(row_tile, first ? g : g + 1, second ? g + 1 : g);
    }
  }
  static bool seen_group(int g, int low, int high) {
    return (g + 1) * kTileRows > low && g * kTileRows < high;
  }

  // Scores of 16 rows: [key][row].
  void score_rows(int row_tile, int low, int high) {
    const std::uint16_t* const queries = queries_of(row_tile);
    float* const scores = scores_of(row_tile);
    repeat<kGroups>([&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      constexpr int kLeft = 4 + 2 * (kGroup % 2);
      if (!seen_group(kGroup, low, high)) return;
      const KeyRows keys = groups_[kGroup];
      clear_tile<kGroup>();
      for (std::int32_t i = 0; i < padded_; i += kDepth) {
        load_tile<kLeft>(keys.first + i * 2, keys.stride);
        load_tile<kLeft + 1>(queries + i / kDepth * kTileHalves, kTileRowBytes);
        Bf16Products::add<kGroup, kLeft, kLeft + 1>();
      }
      store_tile<kGroup>(scores + kGroup * kTileRows * kTileRows, kTileRowBytes);
      next_.fetch<8>();
    });
  }

  // Scores of 32 rows with two groups of 16 keys.
  SLUICE_INLINE void score_pairs(int row_tile, int first_group, int second_group) const {
    const KeyRows first = groups_[first_group];
    const KeyRows second = groups_[second_group];
    const std::uint16_t* queries = queries_of(row_tile);
    const std::int64_t next = queries_of(row_tile + 1) - queries;
    repeat<4>([](auto sum) { clear_tile<decltype(sum)::value>(); });
    for (std::int32_t i = 0; i < padded_; i += kDepth, queries += kTileHalves) {
      load_tile<4>(first.first + i * 2, first.stride);
      load_tile<6>(queries, kTileRowBytes);
      Bf16Products::add<0, 4, 6>();
      load_tile<7>(queries + next, kTileRowBytes);
      Bf16Products::add<1, 4, 7>();
      load_tile<5>(second.first + i * 2, second.stride);
      Bf16Products::add<2, 5, 6>();
      Bf16Products::add<3, 5, 7>();
    }
    const auto store = [&](auto sum, int t, int group) {
      store_tile<decltype(sum)::value>(scores_of(t) + group * kTileRows * kTileRows, kTileRowBytes);
    };
    store(std::integral_constant<int, 0>(), row_tile, first_group);
    store(std::integral_constant<int, 1>(), row_tile + 1, first_group);
    store(std::integral_constant<int, 2>(), row_tile, second_group);
    store(std::integral_constant<int, 3>(), row_tile + 1, second_group);
  }

  // Whether each of 16 rows sees each key of a tile.
  bool sees_all(int row_tile, std::int32_t tile) const {
    const int first = row_tile * kTileRows;
    const int end = first + kTileRows < place_.count() ? first + kTileRows : place_.count();
    return place_.high_of(first, tile) == kAttentionTile && place_.low_of(end - 1, tile) == 0;
  }

  // One step of an online softmax: weights relative to the largest score so far, and the factors by
  // which earlier sums shrink. Sums of weights go along keys, in four chains. `all`: every row sees
  // every key, so no lane needs a mask; each row's arithmetic is the same.
  template <bool all>
  void softmax_rows(int row_tile, std::int32_t tile) {
    const float* const scores = scores_of(row_tile);
    const int row = row_tile * kTileRows;
    const __m512i first = _mm512_loadu_si512(first_ + row);
    const __m512i last = _mm512_loadu_si512(last_ + row);
    const auto seen = [&](int key) {
      if (all) return static_cast<__mmask16>(0xFFFF);
      const __m512i position = _mm512_set1_epi32(tile + key);
      return S::both(_mm512_cmple_epi32_mask(position, last),
                     _mm512_cmple_epi32_mask(first, position));
    };
    const F scale = S::set1(scale_);
    const F none = S::set1(-__builtin_inff());
    const auto score_seen = [&](int key) {
      const F score = S::load(scores + key * kTileRows);
      return all ? score : S::select(seen(key), score, none);
    };
    F largest = none;
    F largest_odd = none;
    for (int key = 0; key < kAttentionTile; key += 2) {
      largest = S::max(score_seen(key), largest);
      largest_odd = S::max(score_seen(key + 1), largest_odd);
    }
    const F before = S::load(largest_ + row);
    const F now = S::max(S::mul(S::max(largest, largest_odd), scale), before);
    S::store(largest_ + row, now);
    // Rows that have not seen a key yet have no weights.
    const F reference = S::select(S::less(none, now), now, S::zero());
    const auto weight = [&](int key) {
      const F score = S::load(scores + key * kTileRows);
      return power_of_two(_mm512_fmsub_ps(score, scale, reference), seen(key));
    };
    F sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    for (int step = 0; step < kSteps; ++step) {
      F pairs[kTileRows];
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        const int key = step * kDepth + 2 * i;
        const F even = weight(key);
        const F odd = weight(key + 1);
        sums[2 * (i % 2)] = S::add(sums[2 * (i % 2)], even);
        sums[2 * (i % 2) + 1] = S::add(sums[2 * (i % 2) + 1], odd);
        pairs[i] = rounded_pairs(even, odd);
        next_.fetch<1>();
      }
      S::transpose(pairs);
      auto* to = reinterpret_cast<float*>(weights_ + step * kTileHalves);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) S::store(to + i * kTileRows, pairs[i]);
    }
    const F factor = power_of_two(S::sub(before, reference), 0xFFFF);
    S::store(factors_ + row, factor);
    const F sum = S::add(S::add(sums[0], sums[2]), S::add(sums[1], sums[3]));
    S::store(sums_ + row, S::add(S::mul(S::load(sums_ + row), factor), sum));
  }

  // Lane i has `even` i and `odd` i in BF16.
  SLUICE_INLINE static F rounded_pairs(F even, F odd) {
    const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    const __m512i places =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return S::as_floats(_mm512_permutexvar_epi16(places, halves));
  }

  void clear_outputs(int row_tile) {
    float* const outputs = outputs_of(row_tile);
    for (std::int32_t i = 0; i < padded_ * kTileRows; i += S::kLanes) {
      S::store(outputs + i, S::zero());
    }
  }

  void scale_outputs(int row_tile) {
    const int row = row_tile * kTileRows;
    const F factors = S::load(factors_ + row);
    if (_mm512_cmp_ps_mask(factors, S::set1(1.0F), _CMP_NEQ_UQ) == 0) return;
    float* const outputs = outputs_of(row_tile);
    for (int r = 0; r < kTileRows; ++r) {
      const F factor = S::set1(factors_[row + r]);
      for (std::int32_t i = 0; i < padded_; i += kTileRows) {
        float* const output = outputs + i * kTileRows + r * kTileRows;
        S::store(output, S::mul(S::load(output), factor));
      }
    }
  }

  // Adds the weighted values of a tile to what is `written`: to all rows, or to row `only` of
  // the 16.
  void weigh(int row_tile, bool written, int only = -1) {
    float* const outputs = outputs_of(row_tile);
    load_tile<4>(weights_, kTileRowBytes);
    load_tile<5>(weights_ + kTileHalves, kTileRowBytes);
    constexpr std::int32_t kStep = 4 * kTileRows;
    float* before = nullptr;
    std::int32_t i = 0;
    for (; i + kStep <= padded_; i += kStep) {
      weigh_columns<4>(outputs, i, written, before, only);
      before = outputs + i * kTileRows;
    }
    if (i < padded_) {
      weigh_columns<2>(outputs, i, written, before, only);
      if (before != nullptr) store_columns<2, 4>(before, only);
      store_columns<0, 2>(outputs + i * kTileRows, only);
    } else {
      store_columns<0, 4>(before, only);
    }
  }

  // Computes the sums of 16 dimensions in each of `count` registers, from dimension i on. If
  // `before` is not null, the registers hold its sums, which are stored one by one beside the
  // loads: four stores that follow each other wait.
  template <int count>
  SLUICE_INLINE void weigh_columns(float* outputs, std::int32_t i, bool written, float* before,
                                   int only) {
    const std::uint16_t* const values = values_ + i / kTileRows * kTileHalves;
    float* const output = outputs + i * kTileRows;
    const std::int64_t next_step = value_step();
    repeat<count>([=](auto column) {
      constexpr int kColumn = decltype(column)::value;
      if (before != nullptr) store_columns<kColumn, kColumn + 1>(before, only);
      if (written) {
        load_tile<kColumn>(output + kColumn * kOutputFloats, kTileRowBytes);
      } else {
        clear_tile<kColumn>();
      }
    });
    repeat<2 * count>([=, this](auto product) {
      constexpr int kStep = decltype(product)::value / count;
      constexpr int kColumn = decltype(product)::value % count;
      constexpr int kRight = 6 + kColumn % 2;
      load_tile<kRight>(values + kStep * next_step + kColumn * kTileHalves, kTileRowBytes);
      Bf16Products::add<kColumn, 4 + kStep, kRight>();
      next_.fetch<2>();
    });
  }

  // Stores the sums in registers [begin, end), of all rows or of row `only` of the 16.
  template <int begin, int end>
  SLUICE_INLINE static void store_columns(float* output, int only) {
    repeat<end - begin>([=](auto column) {
      constexpr int kColumn = begin + decltype(column)::value;
      float* const to = output + kColumn * kOutputFloats;
      if (only < 0) {
        store_tile<kColumn>(to, kTileRowBytes);
      } else {
        alignas(64) float results[kOutputFloats];
        store_tile<kColumn>(results, kTileRowBytes);
        S::store(to + only * kTileRows, S::load(results + only * kTileRows));
      }
    });
  }

  // [low, high): the keys that any row sees.
  void weigh_rows_alone(int row_tile, std::int32_t tile, int low, int high) {
    const int first = row_tile * kTileRows;
    for (int r = 0; r < kTileRows && first + r < place_.count(); ++r) {
      load_values(place_.low_of(first + r, tile), place_.high_of(first + r, tile));
      weigh(row_tile, true, r);
    }
    load_values(low, high);
  }

  // Dimensions return to their order (load_values).
  void store_outputs() {
    float* const output = scores_;
    static_assert(kMaxHeadDim <= kTileRows * kAttentionTile);
    const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    with_dtype<S>(p_.out.dtype, [&](auto out_as) {
      using Out = decltype(out_as);
      for (int r = 0; r < place_.count(); ++r) {
        const RowSums row = totals_.total(r, *this);
        const F sum = S::set1(row.sum);
        const auto vector = [&](std::int32_t i) {
          return S::add(S::load(row.outputs.first + i * row.outputs.stride), S::zero());
        };
        for (std::int32_t i = 0; i < padded_; i += kDepth) {
          const F a = vector(i);
          const F b = vector(i + kTileRows);
          S::store(output + i, _mm512_permutex2var_ps(a, first, b));
          S::store(output + i + kTileRows, _mm512_permutex2var_ps(a, second, b));
        }
        auto* out = row_of<Out>(p_.out, place_.token_of(r)) + place_.head_of(r) * dim_;
        for_vectors<S>(dim_, [&](std::int64_t i, auto... n) {
          Out::store(out + i, S::div(S::load(output + i), sum), n...);
        });
      }
    });
  }

  const std::uint16_t* queries_of(int row_tile) const {
    return queries_ + row_tile * kTileRows * std::int64_t{padded_};
  }
  float* scores_of(int row_tile) const {
    return scores_ + row_tile % 2 * kTileRows * kAttentionTile;
  }
  float* outputs_of(int row_tile) const {
    return outputs_ + row_tile * kTileRows * std::int64_t{padded_};
  }
  std::int64_t value_step() const { return std::int64_t{padded_} * kDepth; }

  const AttentionParams& p_;
  const std::int32_t dim_;
  const std::int32_t padded_;
  const float scale_;  // of scores, to base 2
  const AttentionPiece& piece_;
  const AttentionRows place_;
  AttentionTotals<S, PowerOfTwo> totals_;
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
  bool outputs_written_ = false;  // of the span
  std::int64_t places_[kAttentionTile];
  NextTile next_;
  KeyRows groups_[kGroups];
};

template <class S>
void attention_tiles(const AttentionParams& p, const AttentionPiece& piece) {
  if (in_bf16(p)) {
    TileAttention<S>(p, piece).run();
  } else {
    attention<S>(p, piece);
  }
}
template <class S>
void add_tile_spans(const AttentionParams& p, const AttentionPiece& piece) {
  if (in_bf16(p)) {
    TileAttention<S>(p, piece).add_spans();
  } else {
    add_attention_spans<S>(p, piece);
  }
}

}  // namespace sluice::kernels
