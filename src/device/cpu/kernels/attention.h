// Attention over block tables with an online softmax.
//
// Products run over words of 32 bits: a `Words` policy says which elements of queries, keys,
// weights and values a word holds, and how two vectors of words are multiplied. With one F32
// element in each (WordsOfF32), sums go along elements in order.
//
// Keys are processed in tiles that start at multiples of kAttentionTile positions, and added up
// span by span (attention_totals.h). A tile's keys
// are transposed into scratch ([word of d][key]), so that lanes are keys and a score is accumulated
// along d in order; the output is accumulated along words of keys in order. The keys of a tile that
// a query row sees, and so every operation on the row, depend only on the row's position and
// window. They do not depend on its chunk, on other rows, on where blocks are stored, or on which
// thread computes a span. Keys that a
// row may not see never enter its arithmetic, so nothing (not even a NaN) leaks from padding, stale
// blocks or later tokens.
//
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/attention_totals.h"
#include "device/cpu/kernels/exp.h"
#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/rows.h"

namespace sluice::kernels {

// Rows of keys or values that the next tile needs. They are prefetched while this tile is computed,
// some with each word, because blocks are scattered and too short for hardware prefetching.
struct NextRows {
  const char* base = nullptr;
  const std::int64_t* places = nullptr;  // elements from `base` to each row
  int count = 0;                         // of rows
  int row_bytes = 0;
  int element_bytes = 0;
  SLUICE_INLINE void prefetch(int k) const {
    if (k >= count) return;
    for (int at = 0; at < row_bytes; at += 64) {
      prefetch_second(base + places[k] * element_bytes + at);
    }
  }
};

// c = factor * c + a b for words k in [k_begin, k_end), with a factor for each row. If `factor` is
// null, c starts from zero. Strides are in words.
struct Product {
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* b = nullptr;
  std::int64_t b_stride = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  const float* factor = nullptr;
  int k_begin = 0;
  int k_end = 0;
  NextRows next = {};
};

template <class Words, int rows, int vectors>
SLUICE_INLINE void multiply_tile(const Product& p) {
  using S = typename Words::Simd;
  using F = typename S::F;
  F sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const float* c = p.c + r * p.c_stride + v * S::kLanes;
      sums[r][v] = p.factor == nullptr ? S::zero() : S::mul(S::load(c), S::set1(p.factor[r]));
    }
  }
  for (int k = p.k_begin; k < p.k_end; ++k) {
#pragma GCC unroll 2
    for (int i = 0; i < Words::kElements; ++i) p.next.prefetch(Words::kElements * k + i);
    F bs[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) bs[v] = S::load(p.b + k * p.b_stride + v * S::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const F ar = S::set1(p.a[r * p.a_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[r][v] = Words::multiply_add(ar, bs[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      S::store(p.c + r * p.c_stride + v * S::kLanes, sums[r][v]);
    }
  }
}

template <class Words, int rows>
void multiply_rows(Product p, int num_vectors) {
  using S = typename Words::Simd;
  constexpr int kWide = S::kGemmVectors;
  for (; num_vectors >= kWide; num_vectors -= kWide) {
    multiply_tile<Words, rows, kWide>(p);
    p.b += kWide * S::kLanes;
    p.c += kWide * S::kLanes;
    p.next.count = 0;  // prefetched
  }
  for (; num_vectors > 0; --num_vectors) {
    multiply_tile<Words, rows, 1>(p);
    p.b += S::kLanes;
    p.c += S::kLanes;
    p.next.count = 0;
  }
}

template <int count>
struct Count {
  static constexpr int kValue = count;
};

// Computes any number of rows and vectors.
template <class Words>
void multiply(Product p, int num_rows, int num_vectors) {
  using S = typename Words::Simd;
  static_assert(S::kGemmRows >= 4 && S::kGemmRows < 8);
  const auto step = [&](auto rows) {
    constexpr int kCount = decltype(rows)::kValue;
    multiply_rows<Words, kCount>(p, num_vectors);
    p.a += kCount * p.a_stride;
    p.c += kCount * p.c_stride;
    if (p.factor != nullptr) p.factor += kCount;
    p.next.count = 0;
    num_rows -= kCount;
  };
  while (num_rows >= S::kGemmRows) step(Count<S::kGemmRows>());
  if (num_rows >= 4) step(Count<4>());
  if (num_rows >= 2) step(Count<2>());
  if (num_rows >= 1) step(Count<1>());
}

// The rows of a piece, (query token, head) in this order, and the keys they see.
class AttentionRows {
 public:
  SLUICE_INLINE AttentionRows(const AttentionParams& p, const AttentionPiece& piece)
      : p_(p), piece_(piece), rows_(piece.num_queries * piece.num_heads) {
    const std::int32_t first_token = p.cu_seqlens_q[piece.seq];
    token_ = first_token + piece.first_query;
    const std::int32_t query_len = p.cu_seqlens_q[piece.seq + 1] - first_token;
    position_ = p.seq_lens[piece.seq] - query_len + piece.first_query;
    table_ = p.block_tables + p.row_slots[piece.seq] * p.table_stride;
  }

  SLUICE_INLINE int count() const { return rows_; }
  SLUICE_INLINE std::int32_t token_of(int row) const { return token_ + row / piece_.num_heads; }
  SLUICE_INLINE std::int64_t head_of(int row) const {
    return piece_.first_head + row % piece_.num_heads;
  }
  SLUICE_INLINE std::int32_t position_of(int row) const {
    return position_ + row / piece_.num_heads;
  }
  SLUICE_INLINE std::int32_t first_visible(int row) const {
    const std::int32_t first = position_of(row) - p_.window + 1;
    return p_.window > 0 && first > 0 ? first : 0;
  }
  // The keys [low, high) of a tile that a row sees; high <= low if it sees none.
  SLUICE_INLINE int low_of(int row, std::int32_t tile) const {
    const std::int32_t first = first_visible(row);
    return first > tile ? first - tile : 0;
  }
  SLUICE_INLINE int high_of(int row, std::int32_t tile) const {
    const std::int32_t end = position_of(row) + 1;
    return end - tile < kAttentionTile ? end - tile : kAttentionTile;
  }

  // Writes the offset, in elements, of the key and the value of each position in [begin, end).
  SLUICE_INLINE void find_places(std::int32_t begin, std::int32_t end, std::int64_t* places) const {
    const KvLayerView& kv = p_.kv;
    std::int32_t block = begin / kv.block_size;
    std::int32_t offset = begin % kv.block_size;
    while (begin < end) {
      std::int64_t place = table_[block] * kv.block_stride + piece_.kv_head * kv.head_stride +
                           offset * kv.token_stride;
      for (; offset < kv.block_size && begin < end; ++offset, ++begin) {
        *places++ = place;
        place += kv.token_stride;
      }
      offset = 0;
      ++block;
    }
  }
  // Does the same for the keys that come next, and returns their number: those of the tile that
  // starts at `begin`, or behind the last tile those of the next piece's first one.
  SLUICE_INLINE int find_next(std::int32_t begin, std::int64_t* places) const {
    if (begin < piece_.end_key) return find_tile(begin, piece_.end_key, places);
    if (piece_.next == nullptr) return 0;
    const AttentionPiece& next = *piece_.next;
    return AttentionRows(p_, next).find_tile(next.first_key, next.end_key, places);
  }

 private:
  // The keys of a tile from `begin` on, of those before `end`.
  SLUICE_INLINE int find_tile(std::int32_t begin, std::int32_t end, std::int64_t* places) const {
    const std::int32_t border = (begin / kAttentionTile + 1) * kAttentionTile;
    const std::int32_t last = border < end ? border : end;
    find_places(begin, last, places);
    return last - begin;
  }

  const AttentionParams& p_;
  const AttentionPiece& piece_;
  int rows_;
  std::int32_t token_ = 0;
  std::int32_t position_ = 0;  // of the first query
  const std::int32_t* table_ = nullptr;
};

// A word is an element, widened to F32.
template <class S>
struct WordsOfF32 {
  using Simd = S;
  using F = typename S::F;
  static constexpr int kElements = 1;  // of a word

  SLUICE_INLINE static F multiply_add(F a, F b, F c) { return S::fma(a, b, c); }
  // Writes a vector of a query from element i on.
  SLUICE_INLINE static void store_query(float* query, std::int64_t i, F v) {
    S::store(query + i, v);
  }
  // Writes vector j of a block of transposed keys.
  template <class Kv>
  SLUICE_INLINE static void store_keys(float* target, int j, F keys) {
    Kv::store_columns(target, j, kAttentionTile, keys);
  }
  // Writes the values of the keys in [low, high) to rows of `stride` floats.
  template <class Kv>
  SLUICE_INLINE static void load_values(const typename Kv::Element* base,
                                        const std::int64_t* places, int low, int high,
                                        std::int32_t dim, float* to, std::int32_t stride) {
    for (int key = low; key < high; ++key) {
      float* const row = to + std::int64_t{key} * stride;
      for_vectors<S>(dim, [&](std::int64_t i, auto... n) {
        S::store(row + i, Kv::load(base + places[key] + i, n...));
      });
    }
  }
  // Writes a row's weights of a tile.
  template <int vectors>
  SLUICE_INLINE static void store_weights(float* to, const F (&weights)[vectors]) {
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) S::store(to + i * S::kLanes, weights[i]);
  }
  // While it lives, words of values have nothing of keys outside of [low, high).
  struct SeenValues {
    SLUICE_INLINE SeenValues(float* /*values*/, std::int32_t /*stride*/, int /*low*/,
                             int /*high*/) {}
  };
  template <class Function>
  SLUICE_INLINE static void with_kv(DType kv, const Function& f) {
    with_dtype<S>(kv, f);
  }
};

template <class Words>
class AttentionRun {
 public:
  using S = typename Words::Simd;
  using F = typename S::F;
  struct PowerOfE {
    SLUICE_INLINE static F of(F x) { return exp<S>(x); }
  };

  AttentionRun(const AttentionParams& p, const AttentionPiece& piece)
      : p_(p),
        piece_(piece),
        dim_(p.head_dim),
        padded_(static_cast<std::int32_t>(padded_head(p.head_dim))),
        place_(p, piece),
        rows_(place_.count()),
        totals_(piece, p.head_dim) {
    keys_ = piece.scratch;
    values_ = keys_ + std::int64_t{padded_} * kAttentionTile;
    queries_ = values_ + std::int64_t{padded_} * kAttentionTile;
    outputs_ = queries_ + std::int64_t{padded_} * kMaxAttentionRows;
    scores_ = outputs_ + std::int64_t{padded_} * kMaxAttentionRows;
    largest_ = scores_ + std::int64_t{kMaxAttentionRows} * kAttentionTile;
    sums_ = largest_ + kMaxAttentionRows;
    factors_ = sums_ + kMaxAttentionRows;
  }

  void run() {
    load_queries();
    totals_.add_keys(*this);
    if (piece_.spans == nullptr) store_outputs();
  }

  void add_spans() {
    totals_.add_stored();
    store_outputs();
  }

 private:
  friend class AttentionTotals<S, PowerOfE>;  // clear_sums(), add_tile(), sums_of()

  static constexpr int kTileVectors = kAttentionTile / S::kLanes;

  void load_queries() {
    for (int r = 0; r < rows_; ++r) {
      const float* q = row_of<AsF32<S>>(p_.q, place_.token_of(r)) + place_.head_of(r) * dim_;
      float* query = queries_ + std::int64_t{r} * padded_;
      for_vectors<S>(dim_, [&](std::int64_t i, auto... n) {
        Words::store_query(query, i, S::load(q + i, n...));
      });
    }
  }

  void clear_sums() {
    for (int r = 0; r < rows_; ++r) {
      float* output = outputs_ + std::int64_t{r} * padded_;
      for (std::int32_t i = 0; i < padded_; i += S::kLanes) S::store(output + i, S::zero());
      largest_[r] = -__builtin_inff();
      sums_[r] = 0.0F;
    }
  }

  void add_tile(std::int32_t tile, int low, int high) {
    place_.find_places(tile + low, tile + high, places_ + low);
    next_count_ = place_.find_next(tile + kAttentionTile, next_places_);
    if constexpr (requires { typename Words::Few; }) {
      if (piece_.num_queries == 1 && rows_ <= Words::Few::kRows) {
        return add_few<typename Words::Few>(tile, low, high);
      }
    }
    Words::with_kv(p_.kv.dtype, [&](auto kv_as) { load_tile<decltype(kv_as)>(low, high); });
    score_tile(low, high);
    softmax_tile(tile);
    weigh_tile(tile);
  }

  // All rows see the same keys.
  template <class Few>
  void add_few(std::int32_t tile, int low, int high) {
    const auto tile_of = [&](const void* base) {
      return typename Few::Tile{
          static_cast<const std::uint16_t*>(base), places_, next_places_, low, high, dim_};
    };
    // So many places that no count has to be looked at.
    if (next_count_ == 0) next_places_[next_count_++] = places_[low];
    for (int i = next_count_; i < kAttentionTile; ++i) next_places_[i] = next_places_[i - 1];
    Few::score(tile_of(p_.kv.k_base), queries_, padded_, rows_, scores_);
    softmax_tile(tile);
    Few::weigh(tile_of(p_.kv.v_base), scores_, factors_, rows_, outputs_, padded_);
  }

  SLUICE_INLINE RowSums sums_of(int row) const {
    return {{outputs_ + std::int64_t{row} * padded_}, largest_[row], sums_[row]};
  }

  // Rows of the next tile's keys or values, to be prefetched.
  NextRows next_rows(const void* base) const {
    const int element_bytes = p_.kv.dtype == DType::kF32 ? 4 : 2;
    return {static_cast<const char*>(base), next_places_, next_count_, dim_ * element_bytes,
            element_bytes};
  }

  // Loads keys (transposed) and values (as rows). Keys outside [low, high) are zero in the vectors
  // that are used; their values are not read.
  template <class Kv>
  void load_tile(int low, int high) {
    const auto* k_base = static_cast<const typename Kv::Element*>(p_.kv.k_base);
    const auto* v_base = static_cast<const typename Kv::Element*>(p_.kv.v_base);
    Words::template load_values<Kv>(v_base, places_, low, high, dim_, values_, padded_);
    for (int first = low / S::kLanes * S::kLanes; first < high; first += S::kLanes) {
      std::int64_t d = 0;
      const bool whole = first >= low && first + S::kLanes <= high;
      for (; d + Kv::kColumns <= dim_; d += Kv::kColumns) {
        if (whole) {
          transpose_keys<Kv>(k_base + d, first, d, [](int) { return true; });
        } else {
          transpose_keys<Kv>(k_base + d, first, d,
                             [=](int key) { return key >= low && key < high; });
        }
      }
      if (d < dim_) {
        transpose_keys<Kv>(
            k_base + d, first, d, [=](int key) { return key >= low && key < high; },
            static_cast<int>(dim_ - d));
      }
    }
  }

  // Loads Kv::kColumns elements of each of S::kLanes keys.
  template <class Kv, class Wanted, class... Tail>
  SLUICE_INLINE void transpose_keys(const typename Kv::Element* k, int first, std::int64_t d,
                                    const Wanted& wanted, Tail... n) {
    F block[S::kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < S::kLanes; ++j) {
      block[j] = wanted(first + j) ? Kv::load_columns(k + places_[first + j], n...) : S::zero();
    }
    S::transpose(block);
    float* target = keys_ + d / Words::kElements * kAttentionTile + first;
#pragma GCC unroll 16
    for (int j = 0; j < S::kLanes; ++j) Words::template store_keys<Kv>(target, j, block[j]);
  }

  void score_tile(int low, int high) {
    const int first = low / S::kLanes * S::kLanes;
    const int num_vectors = (high - first + S::kLanes - 1) / S::kLanes;
    multiply<Words>({.a = queries_,
                     .a_stride = padded_,
                     .b = keys_ + first,
                     .b_stride = kAttentionTile,
                     .c = scores_ + first,
                     .c_stride = kAttentionTile,
                     .factor = nullptr,
                     .k_begin = 0,
                     .k_end = words_of(dim_),
                     .next = next_rows(p_.kv.k_base)},
                    rows_, num_vectors);
  }

  // One step of an online softmax: turns scores of a tile into weights relative to each row's
  // largest score so far, and keeps the factors by which earlier sums shrink. Each loop is short,
  // so that the core computes many rows at a time.
  void softmax_tile(std::int32_t tile) {
    for (int row = 0; row < rows_; ++row) {
      factors_[row] = 0.0F;
      with_scores(row, tile, [&](const F(&scores)[kTileVectors]) {
        F largest = S::set1(-__builtin_inff());
#pragma GCC unroll 8
        for (int i = 0; i < kTileVectors; ++i) largest = S::max(scores[i], largest);
        const float before = largest_[row];
        const float now = S::max_lane(largest);
        largest_[row] = now > before ? now : before;
        factors_[row] = before - largest_[row];
      });
    }
    for (int row = 0; row < rows_; ++row) {
      const F reference = S::set1(largest_[row]);
      added_[row] = 0.0F;
      with_scores(row, tile, [&](F(&scores)[kTileVectors]) {
        F sum = S::zero();
#pragma GCC unroll 8
        for (int i = 0; i < kTileVectors; ++i) {
          scores[i] = exp<S>(S::sub(scores[i], reference));
          sum = S::add(sum, scores[i]);
        }
        Words::store_weights(scores_ + std::int64_t{row} * kAttentionTile, scores);
        added_[row] = sum_lanes(S::quarter_sum(sum));
      });
    }
    for (int row = 0; row < rows_; row += S::kLanes) {
      const F factor = exp<S>(S::load(factors_ + row));
      S::store(factors_ + row, factor);
      S::store(sums_ + row, S::add(S::mul(S::load(sums_ + row), factor), S::load(added_ + row)));
    }
  }

  // Calls use() with the scaled scores of a row that sees keys of the tile; those of other keys are
  // minus infinity.
  template <class Use>
  SLUICE_INLINE void with_scores(int row, std::int32_t tile, const Use& use) const {
    const int low = place_.low_of(row, tile);
    const int high = place_.high_of(row, tile);
    if (high <= low) return;
    const float* const scores = scores_ + std::int64_t{row} * kAttentionTile;
    const F scale = S::set1(p_.scale);
    F v[kTileVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kTileVectors; ++i) v[i] = S::mul(S::load(scores + i * S::kLanes), scale);
    if (high - low < kAttentionTile) {
      const F none = S::set1(-__builtin_inff());
#pragma GCC unroll 8
      for (int i = 0; i < kTileVectors; ++i) {
        v[i] = S::select(lanes_between(low - i * S::kLanes, high - i * S::kLanes), v[i], none);
      }
    }
    use(v);
  }

  // Adds the weighted values of a tile, for rows that see the same keys together.
  void weigh_tile(std::int32_t tile) {
    NextRows next = next_rows(p_.kv.v_base);
    for (int row = 0; row < rows_;) {
      const int low = place_.low_of(row, tile);
      const int high = place_.high_of(row, tile);
      int end = row + 1;
      while (end < rows_ && place_.low_of(end, tile) == low && place_.high_of(end, tile) == high)
        ++end;
      if (high > low) {
        const typename Words::SeenValues seen(values_, padded_, low, high);
        multiply<Words>({.a = scores_ + std::int64_t{row} * kAttentionTile,
                         .a_stride = kAttentionTile,
                         .b = values_,
                         .b_stride = padded_,
                         .c = outputs_ + std::int64_t{row} * padded_,
                         .c_stride = padded_,
                         .factor = factors_ + row,
                         .k_begin = low / Words::kElements,
                         .k_end = words_of(high),
                         .next = next},
                        end - row, (dim_ + S::kLanes - 1) / S::kLanes);
        next.count = 0;
      }
      row = end;
    }
  }

  void store_outputs() {
    with_dtype<S>(p_.out.dtype, [&](auto out_as) {
      using Out = decltype(out_as);
      for (int r = 0; r < rows_; ++r) {
        const RowSums row = totals_.total(r, *this);
        const F sum = S::set1(row.sum);
        auto* out = row_of<Out>(p_.out, place_.token_of(r)) + place_.head_of(r) * dim_;
        for_vectors<S>(dim_, [&](std::int64_t i, auto... n) {
          const F output = S::add(S::load(row.outputs.first + i), S::zero());
          Out::store(out + i, S::div(output, sum), n...);
        });
      }
    });
  }

  SLUICE_INLINE static int words_of(int elements) {
    return (elements + Words::kElements - 1) / Words::kElements;
  }
  SLUICE_INLINE static int clamp(int n) { return n < 0 ? 0 : n > S::kLanes ? S::kLanes : n; }
  SLUICE_INLINE static typename S::Mask lanes_between(int low, int high) {
    return S::without(S::first(clamp(high)), S::first(clamp(low)));
  }

  const AttentionParams& p_;
  const AttentionPiece& piece_;
  const std::int32_t dim_;
  const std::int32_t padded_;
  const AttentionRows place_;
  const int rows_;
  AttentionTotals<S, PowerOfE> totals_;
  // Rows of queries and weights, and columns of keys and values, are of words.
  float* keys_;                          // [D][kAttentionTile]
  float* values_;                        // [kAttentionTile][padded]
  float* queries_;                       // [rows][padded]
  float* outputs_;                       // [rows][padded], not yet divided by the sums
  float* scores_;                        // [rows][kAttentionTile], then weights
  float* largest_;                       // [rows]
  float* sums_;                          // [rows]
  float* factors_;                       // [rows]
  std::int64_t places_[kAttentionTile];  // of the keys of this tile
  std::int64_t next_places_[kAttentionTile];
  int next_count_ = 0;
  float added_[kMaxAttentionRows] = {};  // to the sums, by this tile
};

template <class S>
void attention(const AttentionParams& p, const AttentionPiece& piece) {
  AttentionRun<WordsOfF32<S>>(p, piece).run();
}
template <class S>
void add_attention_spans(const AttentionParams& p, const AttentionPiece& piece) {
  AttentionRun<WordsOfF32<S>>(p, piece).add_spans();
}

// Whether units that multiply pairs of BF16 are used where there are any.
SLUICE_INLINE static bool in_bf16(const AttentionParams& p) {
  return p.kv.dtype == DType::kBF16 && p.head_dim % 8 == 0;
}

}  // namespace sluice::kernels
