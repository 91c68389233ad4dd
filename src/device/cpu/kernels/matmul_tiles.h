// Matmul on tile registers (AMX). 16 rows of the weight by 64 bytes along K are the left operand,
// where they lie in the checkpoint: nothing is repacked but x, once for each op (pack_rows).
// Weights in FP8 are widened to BF16 in scratch memory, in the cache. A result has columns of
// `out` as its rows and is transposed when it is stored.
//
// With many tokens, the results of one block are transposed and stored beside the steps of the next
// one, where the tile unit is busy. A block of a gated product has 16 columns of its gate and the
// same ones of its up; its results are activated there, so that only outputs reach memory.
//
// Each output is a sum along K in steps of one tile, in order, whatever else is computed with it,
// so the bits do not depend on the number of rows or on how an op is split. Included by
// kernels_amx.cpp only; see simd_avx512.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/rows.h"
#include "device/cpu/kernels/simd_avx512.h"
#include "device/cpu/kernels/tile_registers.h"
#include "device/cpu/kernels/tile_weights.h"

namespace sluice::kernels {

// Up to this many tiles of tokens, weights are read once and sums stay in registers.
inline constexpr int kFewTiles = 4;

// Tokens in the rows of a packed tile (pack_tokens).
SLUICE_INLINE constexpr int packed_width(std::int32_t rows) {
  return rows < kTileRows ? rows : kTileRows;
}

// The rows of one or two tiles of weights along one pass of K.
struct LeftRows {
  const std::uint8_t* first = nullptr;   // tile
  const std::uint8_t* second = nullptr;  // tile
  std::int64_t stride = 0;               // bytes between rows
  std::int64_t step = 0;                 // bytes between tiles along K
};

// Lines of memory to prefetch meanwhile: `count` rows of each tile, beside each step along K.
struct Upcoming {
  const std::uint8_t* first = nullptr;   // tile
  const std::uint8_t* second = nullptr;  // tile
  std::int64_t stride = 0;
  int count = 0;
};

// `Weight`: of tile_weights.h. `Products`: of tile_registers.h. `Result`: how sums become outputs.
template <class Weight, class Products, class Result>
class TileMatmul {
 public:
  using Piece = typename Result::Piece;
  explicit TileMatmul(const Piece& piece)
      : piece_(piece),
        p_(Result::product(piece, 0)),
        tokens_(static_cast<int>((p_.row_end + kTileRows - 1) / kTileRows)),
        x_row_bytes_(4 * packed_width(p_.row_end)),
        k_tiles_((p_.depth + kTileDepth - 1) / kTileDepth) {}

  // REQUIRES: p.row_begin is 0; p.x is packed.
  void run() {
    const TileSession session(packed_width(p_.row_end), kGated ? 2 : 1);
    if constexpr (kGated) return many();
    switch (tokens_) {
      case 1: return few<1>();
      case 2: return few<2>();
      case 3: return few<3>();
      case kFewTiles: return few<kFewTiles>();
      default: return many();
    }
  }

 private:
  using Element = typename Weight::Element;
  static constexpr bool kGated = Result::kGated;
  static constexpr std::int64_t kElementBytes = sizeof(Element);
  static constexpr std::int64_t kTileDepth = kTileRowBytes / kElementBytes;
  static constexpr std::int64_t kPassDepth = kPassBytes / kElementBytes;
  static constexpr std::int64_t kFewPassDepth =
      Weight::kInPlace ? kPassDepth : kFewPassBytes / kElementBytes;
  // Two tiles of a weight by more steps do not stay in the first-level cache from one tile of
  // tokens to the next.
  static constexpr std::int64_t kStepsKept = 32;
  // keep_storing() comes once in so many steps, which take less than half a microsecond.
  static constexpr std::int64_t kStepsAwake = 8;
  // Lines ahead of the tile that is multiplied, along each row of a weight that comes from memory.
  static constexpr std::int64_t kLinesAhead = 4;

  // Tiles of tokens `tile`, from the element k of K on.
  const std::uint8_t* x_tiles(int tile, std::int64_t k) const {
    return static_cast<const std::uint8_t*>(p_.x) +
           (tile * k_tiles_ + k / kTileDepth) * kTileRows * x_row_bytes_;
  }

  // Rows of a weight in a tile.
  struct Left {
    const MatmulPiece* product = nullptr;
    std::int64_t col = 0;
    int there = 0;  // the others are zeros
    const std::uint8_t* place(std::int64_t k) const { return Weight::place(*product, col, k); }
  };
  // Tile `left` of the block at `col`.
  Left left_of(int left, std::int64_t col) const {
    if constexpr (kGated) return {&Result::product(piece_, left), col, count_of(col)};
    col += left * kTileRows;
    return {&p_, col, count_of(col)};
  }

  // The tiles of the block at `col`, from k on. They may lie in scratch memory from `scratch` on.
  template <int lefts>
  LeftRows left_rows(std::int64_t col, std::int64_t k, std::int64_t depth,
                     std::uint8_t* scratch) const {
    const Left first = left_of(0, col);
    const Left last = left_of(lefts - 1, col);
    if constexpr (Weight::kInPlace) {
      if (last.there == kTileRows && depth % kTileDepth == 0) {
        return {first.place(k), last.place(k), Weight::stride(p_), kTileRowBytes};
      }
    }
    constexpr std::int64_t kStep = lefts * kTileBytes;
    put_rows(first, k, depth, {scratch, kStep});
    if (lefts == 2) put_rows(last, k, depth, {scratch + kTileBytes, kStep});
    return {scratch, scratch + (lefts - 1) * kTileBytes, kTileRowBytes, kStep};
  }
  static void put_rows(const Left& left, std::int64_t k, std::int64_t depth,
                       const ScratchRows& to) {
    Weight::put_rows(*left.product, left.col, left.there, k, depth, to);
    for (int r = left.there; r < kTileRows; ++r) {
      std::uint8_t* line = to.first + r * kTileRowBytes;
      for (std::int64_t i = 0; i < depth; i += kTileDepth, line += to.step) {
        _mm512_storeu_si512(line, _mm512_setzero_si512());
      }
    }
  }

  // Few tokens: their tiles stay in the first-level cache.
  struct FewTokens {
    static constexpr bool kXOnce = false;
    static constexpr bool kWeightOnce = false;
    static constexpr bool kKeepStoring = false;  // it waits for memory longer than for a store
  };
  // The tiles of many tokens pass by the first-level cache.
  template <bool weight_once>
  struct ManyTokens {
    static constexpr bool kXOnce = true;
    static constexpr bool kWeightOnce = weight_once;
    static constexpr bool kKeepStoring = true;
  };

  // Adds the products of the weight's tile in register kWhole + left with tiles of tokens from j
  // on; the first tile of the weight loads them.
  template <class Tokens, int left, int lefts, int rights, int j = 0>
  SLUICE_INLINE static void add_products(const std::uint8_t* x, std::int64_t stride,
                                         std::int64_t row_bytes) {
    if constexpr (j < rights) {
      constexpr int kLeft = TileSession::kWhole;
      constexpr int kRight = kLeft + lefts;
      constexpr int kTile = kRight + j % (8 - kRight);
      if constexpr (left == 0) load_tile<kTile, Tokens::kXOnce>(x + j * stride, row_bytes);
      Products::template add<left * rights + j, kLeft + left, kTile>();
      add_products<Tokens, left, lefts, rights, j + 1>(x, stride, row_bytes);
    }
  }

  // Adds the products of `lefts` tiles of the weight with `rights` tiles of tokens, for `steps`
  // tiles along K. The sums are in registers left * rights + right. Calls beside.step() in each
  // step. A core looks ahead a few steps only, and memory is read again after each instruction of
  // tiles: so what the loop needs is in copies.
  template <class Tokens, int lefts, int rights, class Beside>
  SLUICE_INLINE void multiply(LeftRows rows, const std::uint8_t* x, std::int64_t steps,
                              Upcoming upcoming, Beside& beside) {
    static_assert(rights <= 4 && (lefts == 1 || (lefts == 2 && rights <= 2)));
    constexpr int kLeft = TileSession::kWhole;
    const std::int64_t x_row_bytes = x_row_bytes_;
    const std::int64_t x_tile_bytes = kTileRows * x_row_bytes;
    const std::int64_t x_stride = k_tiles_ * x_tile_bytes;
    std::uint8_t* const awake = awake_;
    for (std::int64_t step = 0; step < steps; ++step) {
      load_tile<kLeft, Tokens::kWeightOnce>(rows.first, rows.stride);
      add_products<Tokens, 0, lefts, rights>(x, x_stride, x_row_bytes);
      for (int r = 0; r < upcoming.count; ++r) {
        prefetch_second(upcoming.first + r * upcoming.stride);
        if (lefts == 2) prefetch_second(upcoming.second + r * upcoming.stride);
      }
      beside.step();
      if constexpr (lefts == 2) {
        load_tile<kLeft + 1, Tokens::kWeightOnce>(rows.second, rows.stride);
        rows.second += rows.step;
        upcoming.second += kTileRowBytes;
        add_products<Tokens, 1, lefts, rights>(x, x_stride, x_row_bytes);
      }
      if (Tokens::kKeepStoring && step % kStepsAwake == kStepsAwake - 1) {
        keep_storing<kLeft>(awake);
      }
      rows.first += rows.step;
      x += x_tile_bytes;
      upcoming.first += kTileRowBytes;
    }
  }

  // A tile of columns along one pass of K.
  struct FewPass {
    std::int64_t col = 0;
    std::int64_t k = 0;
    std::int64_t depth = 0;
    LeftRows rows;
  };

  FewPass few_pass(std::int64_t col, std::int64_t k, int buffer) const {
    constexpr std::int64_t kBufferBytes = kTileRows * kFewPassDepth * kElementBytes;
    FewPass pass{col, k, p_.depth - k < kFewPassDepth ? p_.depth - k : kFewPassDepth, {}};
    if (col < p_.col_end) {
      pass.rows = left_rows<1>(col, k, pass.depth,
                               reinterpret_cast<std::uint8_t*>(p_.scratch) + buffer * kBufferBytes);
    }
    return pass;
  }

  // All products of up to kFewTiles tiles of tokens: a weight in place is read from memory once.
  // A weight in scratch memory is put there one pass ahead, so that tiles are not loaded before
  // their stores are done, and memory is read while others are multiplied.
  template <int rights>
  void few() {
    NothingBeside nothing;
    int buffer = 0;
    FewPass pass = few_pass(p_.col_begin, 0, buffer);
    while (pass.col < p_.col_end) {
      const std::int64_t end = pass.k + pass.depth;
      buffer = 1 - buffer;
      const FewPass next = end < p_.depth ? few_pass(pass.col, end, buffer)
                                          : few_pass(pass.col + kTileRows, 0, buffer);
      if (pass.k == 0) repeat<rights>([](auto j) { clear_tile<decltype(j)::value>(); });
      const std::int64_t steps = (pass.depth + kTileDepth - 1) / kTileDepth;
      const std::int64_t last =
          Weight::kInPlace && end == p_.depth ? (steps < kLinesAhead ? steps : kLinesAhead) : 0;
      multiply<FewTokens, 1, rights>(pass.rows, x_tiles(0, pass.k), steps - last,
                                     ahead_of(pass.rows, count_of(pass.col)), nothing);
      if (last > 0) {
        // The lines that follow are those of the next rows.
        LeftRows rows = pass.rows;
        rows.first += (steps - last) * rows.step;
        multiply<FewTokens, 1, rights>(rows, x_tiles(0, pass.k + (steps - last) * kTileDepth), last,
                                       begin_of(pass.col + kTileRows), nothing);
      }
      if (end == p_.depth) store_sums<rights>(pass.col);
      pass = next;
    }
  }

  template <int rights>
  SLUICE_INLINE void store_sums(std::int64_t col) {
    store_tiles<rights>(results_);
    Waiting(piece_, 0, col, 1, rights, results_).finish();
  }

  // The first lines of rows from `col` on.
  Upcoming begin_of(std::int64_t col) const {
    if (col >= p_.col_end) return next_piece();
    return {Weight::place(p_, col, 0), nullptr, Weight::stride(p_), count_of(col)};
  }

  // The lines that follow in each row of a weight in place.
  Upcoming ahead_of(const LeftRows& rows, int there) const {
    if constexpr (!Weight::kInPlace) return {};
    if (rows.stride == kTileRowBytes) return {};  // in scratch memory
    return {rows.first + kLinesAhead * kTileRowBytes, nullptr, rows.stride, there};
  }

  // Results of a block, [left][right][columns][tokens], that become outputs by and by, in groups of
  // 4 tokens by 16 columns.
  class Waiting {
   public:
    SLUICE_INLINE Waiting() = default;
    // `token`: the tile of the first ones.
    SLUICE_INLINE Waiting(const Piece& piece, int token, std::int64_t col, int lefts, int rights,
                          const float* results)
        : piece_(&piece),
          row_(std::int64_t{token} * kTileRows),
          first_row_(row_),
          end_row_(row_ + std::int64_t{rights} * kTileRows),
          col_(col),
          results_(results),
          to_second_(rights * kResultFloats),
          left_((kGated ? 1 : lefts) * rights * kGroups) {}

    int count() const { return left_; }
    // Each step stores `groups`.
    SLUICE_INLINE void begin_steps(int groups) { groups_ = groups; }
    SLUICE_INLINE void step() {
      for (int i = 0; i < groups_ && left_ > 0; ++i) store();
    }
    SLUICE_INLINE void finish() {
      while (left_ > 0) store();
    }

   private:
    static constexpr int kGroup = 4;  // tokens
    static constexpr int kGroups = kTileRows / kGroup;

    SLUICE_INLINE void store() {
      const std::int64_t cols = Result::product(*piece_, 0).col_end - col_;
      Result::store(*piece_, row_, col_, cols < kTileRows ? static_cast<int>(cols) : kTileRows,
                    results_, to_second_);
      --left_;
      row_ += kGroup;
      results_ += kGroup;
      if (row_ % kTileRows != 0) return;
      results_ += kResultFloats - kTileRows;
      if (row_ < end_row_) return;
      row_ = first_row_;
      col_ += kTileRows;
    }

    const Piece* piece_ = nullptr;
    std::int64_t row_ = 0;
    std::int64_t first_row_ = 0;
    std::int64_t end_row_ = 0;
    std::int64_t col_ = 0;
    const float* results_ = nullptr;
    std::int64_t to_second_ = 0;  // floats between the tiles of a gate and an up
    int left_ = 0;                // groups
    int groups_ = 0;
  };
  struct NothingBeside {
    SLUICE_INLINE static void step() {}
  };

  template <int count>
  SLUICE_INLINE static void store_tiles(float* results) {
    repeat<count>([&](auto i) {
      store_tile<decltype(i)::value>(results + decltype(i)::value * kResultFloats, kTileRowBytes);
    });
  }

  // All products of many tokens, in passes along K. Sums wait in memory between passes.
  void many() {
    for (std::int64_t k = 0; k < p_.depth; k += kPassDepth) {
      for (std::int64_t col = p_.col_begin; col < p_.col_end; col += kBlockCols) {
        if (kGated || p_.col_end - col > kTileRows) {
          pass<2>(col, k);
        } else {
          pass<1>(col, k);
        }
      }
    }
    waiting_.finish();
  }

  template <int lefts>
  void pass(std::int64_t col, std::int64_t k) {
    const std::int64_t depth = p_.depth - k < kPassDepth ? p_.depth - k : kPassDepth;
    const LeftRows rows =
        left_rows<lefts>(col, k, depth, reinterpret_cast<std::uint8_t*>(p_.scratch));
    const Upcoming upcoming = next_rows(col + kBlockCols, k);
    for (int token = 0; token < tokens_; token += 2) {
      const int end = upcoming.count * (token + 2 < tokens_ ? token + 2 : tokens_) / tokens_;
      const int begin = upcoming.count * token / tokens_;
      Upcoming share = upcoming;
      share.first += begin * upcoming.stride;
      share.second += begin * upcoming.stride;
      share.count = end - begin;
      if (token + 1 < tokens_) {
        pass<lefts, 2>(rows, token, col, k, depth, share);
      } else {
        pass<lefts, 1>(rows, token, col, k, depth, share);
      }
    }
  }

  // The rows of the weight that the next pass reads.
  Upcoming next_rows(std::int64_t col, std::int64_t k) const {
    if (col >= p_.col_end) {
      col = p_.col_begin;
      k += kPassDepth;
      if (k >= p_.depth) return next_piece();
    }
    // Rows that do not exist are fetched, too, or those before them twice.
    const Left first = left_of(0, col);
    const Left second = left_of(1, col);
    return {first.place(k), (second.there > 0 ? second : first).place(k), Weight::stride(p_),
            first.there};
  }

  // The first rows of the weight that the next piece reads.
  Upcoming next_piece() const {
    if (p_.next_weight == nullptr) return {};
    const auto* const first = static_cast<const std::uint8_t*>(p_.next_weight);
    const auto* const second =
        kGated ? static_cast<const std::uint8_t*>(Result::product(piece_, 1).next_weight)
               : first + kTileRows * Weight::stride(p_);
    return {first, second, Weight::stride(p_), kTileRows};
  }

  template <int lefts, int rights>
  void pass(const LeftRows& rows, int token, std::int64_t col, std::int64_t k, std::int64_t depth,
            const Upcoming& upcoming) {
    float* const sums =
        p_.sums + ((col - p_.col_begin) / kBlockCols * 2 * tokens_ + token) * kResultFloats;
    const std::int64_t next_left = tokens_ * kResultFloats;
    repeat<lefts * rights>([&](auto i) {
      constexpr int kIndex = decltype(i)::value;
      if (k == 0) {
        clear_tile<kIndex>();
      } else {
        load_tile<kIndex>(sums + kIndex / rights * next_left + kIndex % rights * kResultFloats,
                          kTileRowBytes);
      }
    });
    const std::int64_t steps = (depth + kTileDepth - 1) / kTileDepth;
    Waiting waiting = waiting_;
    waiting.begin_steps(static_cast<int>((waiting.count() + steps - 1) / steps));
    if (steps > kStepsKept) {
      multiply<ManyTokens<true>, lefts, rights>(rows, x_tiles(token, k), steps, upcoming, waiting);
    } else {
      multiply<ManyTokens<false>, lefts, rights>(rows, x_tiles(token, k), steps, upcoming, waiting);
    }
    waiting_ = waiting;
    if (k + depth == p_.depth) {
      store_tiles<lefts * rights>(results_);
      waiting_ = Waiting(piece_, token, col, lefts, rights, results_);
      return;
    }
    repeat<lefts * rights>([&](auto i) {
      constexpr int kIndex = decltype(i)::value;
      store_tile<kIndex>(sums + kIndex / rights * next_left + kIndex % rights * kResultFloats,
                         kTileRowBytes);
    });
  }

  // How many of the columns of a tile at `col` exist.
  int count_of(std::int64_t col) const {
    const std::int64_t left = p_.col_end - col;
    return left < kTileRows ? static_cast<int>(left) : kTileRows;
  }

  static constexpr std::int64_t kResultFloats = kTileBytes / 4;
  static constexpr std::int64_t kBlockCols = kGated ? kTileRows : 2 * kTileRows;
  const Piece& piece_;
  const MatmulPiece& p_;            // the product, or the gate's
  const int tokens_;                // tiles of them
  const std::int64_t x_row_bytes_;  // of a tile of tokens
  const std::int64_t k_tiles_;
  Waiting waiting_;
  alignas(64) std::uint8_t awake_[kTileRowBytes];
  alignas(64) float results_[4 * kResultFloats];  // of the block that waits
};

// Results of 4 rows, of [16 columns][kTileRows]: 16 columns of each.
SLUICE_INLINE static void transpose_results(const float* results, __m512 (&rows)[4]) {
  // Lane l of vector i: columns 4 l + i. Transposed within lanes, a row's columns are in order.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const float* const at = results + i * kTileRows;
    constexpr int kLane = 4 * kTileRows;
    __m512 lanes = _mm512_castps128_ps512(_mm_load_ps(at));
    lanes = _mm512_mask_broadcast_f32x4(lanes, 0x00F0, _mm_load_ps(at + kLane));
    lanes = _mm512_mask_broadcast_f32x4(lanes, 0x0F00, _mm_load_ps(at + 2 * kLane));
    rows[i] = _mm512_mask_broadcast_f32x4(lanes, 0xF000, _mm_load_ps(at + 3 * kLane));
  }
  Avx512::transpose_lanes(rows);
}

// Sums of up to 16 columns as floats. Sums in F32 are that already.
class FloatSums {
 public:
  SLUICE_INLINE FloatSums(const MatmulPiece& /*p*/, std::int64_t /*col*/, int /*cols*/) {}
  SLUICE_INLINE __m512 floats(__m512 sums, std::int64_t /*row*/) const { return sums; }
};

// Sums of codes are scaled (MatmulSegment).
class ScaledSums {
 public:
  SLUICE_INLINE ScaledSums(const MatmulPiece& p, std::int64_t col, int cols)
      : rows_(p.x_rows), scales_(scales_of(p, col, cols)) {}
  SLUICE_INLINE __m512 floats(__m512 sums, std::int64_t row) const {
    const __m512 integers = _mm512_cvtepi32_ps(_mm512_castps_si512(sums));
    return Avx512::mul(integers, Avx512::mul(Avx512::set1(rows_[row].scale), scales_));
  }

 private:
  SLUICE_INLINE static __m512 scales_of(const MatmulPiece& p, std::int64_t col, int cols) {
    if (p.scales.block_rows == 1 && p.scales.stride == 1) {
      return Avx512::load(p.scales.values + col, cols);
    }
    float of_cols[kTileRows] = {};
    for (int c = 0; c < cols; ++c) {
      of_cols[c] = scale_of_column(p, col + c);
    }
    return Avx512::load(of_cols);
  }

  const QuantizedRow* rows_;
  __m512 scales_;
};

// A result: how the sums of a Piece become outputs. product(piece, i): the first or second product
// of a block, which are gate and up, or the same one. store(...): 4 rows from `row` on, of up to 16
// columns; those of the second tile begin `to_second` floats after those of the first.
template <class Sums>
struct PlainResult {
  using Piece = MatmulPiece;
  static constexpr bool kGated = false;
  static const MatmulPiece& product(const Piece& p, int /*i*/) { return p; }

  SLUICE_INLINE static void store(const Piece& p, std::int64_t row, std::int64_t col, int cols,
                                  const float* results, std::int64_t /*to_second*/) {
    const Sums sums(p, col, cols);
    __m512 v[4];
    transpose_results(results, v);
    float* const out = p.out + row * p.out_stride + col;
    const std::int64_t rows = p.row_end - row;
    if (rows >= 4 && cols == kTileRows) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        Avx512::store(out + i * p.out_stride, sums.floats(v[i], row + i));
      }
      return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (i < rows) Avx512::store(out + i * p.out_stride, sums.floats(v[i], row + i), cols);
    }
  }
};

template <class Sums>
struct GatedResult {
  using Piece = GatedPiece;
  static constexpr bool kGated = true;
  static const MatmulPiece& product(const Piece& p, int i) { return i == 0 ? p.gate : p.up; }

  SLUICE_INLINE static void store(const Piece& p, std::int64_t row, std::int64_t col, int cols,
                                  const float* results, std::int64_t to_second) {
    const Sums gate_sums(p.gate, col, cols);
    const Sums up_sums(p.up, col, cols);
    __m512 gate[4];
    __m512 up[4];
    transpose_results(results, gate);
    transpose_results(results + to_second, up);
    const std::int64_t rows = p.gate.row_end - row;
    with_dtype<Avx512>(p.out.dtype, [&](auto out_as) {
      using Out = decltype(out_as);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (i >= rows) continue;
        const __m512 g = activate<Avx512>(gate_sums.floats(gate[i], row + i), p.activation);
        Out::store(row_of<Out>(p.out, row + i) + col,
                   Avx512::mul(g, up_sums.floats(up[i], row + i)), cols);
      }
    });
  }
};

template <class Weight, class Products, class Sums>
void matmul_tiles(const MatmulPiece& p) {
  TileMatmul<Weight, Products, PlainResult<Sums>>(p).run();
  if (p.bias != nullptr) add_bias<Avx512>(p);
}

template <class Weight, class Products, class Sums>
void gated_tiles(const GatedPiece& p) {
  TileMatmul<Weight, Products, GatedResult<Sums>>(p).run();
}

// 16 pairs along K of up to 16 rows, each pair of all rows a vector; `count` rows and n elements
// exist.
template <class S>
SLUICE_INLINE void load_transposed(const std::uint16_t* first, std::int64_t stride,
                                   std::int32_t count, int n, typename S::F (&v)[kTileRows]) {
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
    v[i] = i < count ? S::as_floats(S::load_pairs(first + i * stride, n)) : S::zero();
  }
  S::transpose(v);
}

// Packs tiles [begin, end) of 16 rows of x in BF16: for each 32 elements along K a right operand,
// [16 pairs along K][16 rows][2]. Rows and elements that do not exist are zeros. Two codes of INT8
// are moved as one element.
template <class S>
void pack_rows(const TensorView& x, std::int32_t rows, std::int32_t begin, std::int32_t end,
               std::uint16_t* packed) {
  constexpr std::int64_t kDepth = 32;
  const std::int64_t depth = x.dims[1];
  const std::int64_t k_tiles = (depth + kDepth - 1) / kDepth;
  for (std::int32_t tile = begin; tile < end; ++tile) {
    std::uint16_t* to = packed + tile * k_tiles * (kTileBytes / 2);
    const auto* first = static_cast<const std::uint16_t*>(x.data) + tile * kTileRows * x.strides[0];
    const std::int32_t count = rows - tile * kTileRows;
    for (std::int64_t k = 0; k < depth; k += kDepth, to += kTileBytes / 2) {
      const int n = static_cast<int>(depth - k < kDepth ? depth - k : kDepth);
      typename S::F v[kTileRows];
      load_transposed<S>(first + k, x.strides[0], count, n, v);
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        S::store(reinterpret_cast<float*>(to) + i * kTileRows, v[i]);
      }
    }
  }
}

// The same for products: fewer rows than a tile has are packed to [16 pairs along K][rows][2], so
// that they stay in the first-level cache beside weights.
template <class S>
void pack_tokens(const TensorView& x, std::int32_t rows, std::int32_t begin, std::int32_t end,
                 std::uint16_t* packed) {
  if (packed_width(rows) == kTileRows) return pack_rows<S>(x, rows, begin, end, packed);
  if (begin == end) return;
  constexpr std::int64_t kDepth = 32;
  const auto* const first = static_cast<const std::uint16_t*>(x.data);
  auto* to = reinterpret_cast<float*>(packed);
  for (std::int64_t k = 0; k < x.dims[1]; k += kDepth, to += kTileRows * rows) {
    const int n = static_cast<int>(x.dims[1] - k < kDepth ? x.dims[1] - k : kDepth);
    if (rows == 1) {
      S::store(to, S::as_floats(S::load_pairs(first + k, n)));
      continue;
    }
    typename S::F v[kTileRows];
    load_transposed<S>(first + k, x.strides[0], rows, n, v);
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) S::store(to + i * rows, v[i], rows);
  }
}

}  // namespace sluice::kernels
