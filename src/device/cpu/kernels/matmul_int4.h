// Products with weights in INT4. The inputs are in INT8 (int4_input.h), so the products of a block
// are integers and their sum is exact; then sum += float(of the block) * (scale of the weight *
// scale of x) for each block along K, in order, by fused multiply-adds. So bits depend neither on
// the instruction set nor on how an op is split.
//
// A tile of columns, one in each lane, takes a block at a time: 16 bytes of each column become four
// vectors of four bytes of each column, the codes of two halves of the block. They are multiplied
// by four codes of a row of x in every lane, so no lanes have to be added.
//
// Policies (Int4...) define how to multiply. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/int4_input.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// Blocks of a column that are taken together.
inline constexpr int kInt4Group = 4;
inline constexpr std::int64_t kInt4BlockBytes = block_of(DType::kI4).bytes;
inline constexpr std::int64_t kInt4GroupBytes = kInt4Group * kInt4BlockBytes;

// Fetches a line, and into the second-level cache what comes later: memory answers late.
SLUICE_INLINE static void fetch_lines(const std::uint8_t* p) {
  constexpr std::int64_t kLater = 16 << 10;
  prefetch_near(p);
  prefetch_second(p + kLater);
}

// One block, or the first of some, of columns that are `stride` bytes apart, as addresses that
// instructions can compute from few registers.
template <int columns>
class Int4Columns {
 public:
  static constexpr int kQuarters = columns / 4;
  SLUICE_INLINE Int4Columns(const std::uint8_t* first, std::int64_t stride)
      : stride_(stride), triple_(3 * stride) {
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) quarters_[i] = first + 4 * i * stride;
  }
  // Column c, from the byte `offset` on.
  SLUICE_INLINE const std::uint8_t* at(int c, std::int64_t offset) const {
    const std::uint8_t* const quarter = quarters_[c / 4] + offset;
    switch (c % 4) {
      case 0: return quarter;
      case 1: return quarter + stride_;
      case 2: return quarter + 2 * stride_;
      default: return quarter + triple_;
    }
  }
  SLUICE_INLINE void step(std::int64_t bytes) {
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) quarters_[i] += bytes;
  }

 private:
  const std::uint8_t* quarters_[kQuarters];
  std::int64_t stride_;
  std::int64_t triple_;
};

// `P`: a policy. rows: of x, in one tile. width: of the tile, if it is known; else 0.
template <class P, int rows, int width>
struct Int4Tile {
  using S = typename P::Simd;
  using F = typename S::F;
  using Codes = typename P::Codes;
  static constexpr int kCols = S::kLanes;
  using Columns = Int4Columns<kCols>;

  // Columns [col, col + cols), with row `row` of tile `tile` of x and the next ones. Meanwhile
  // fetches the memory at `ahead`, as much as it reads, or nothing.
  static void run(const MatmulPiece& p, const Int4Input& x, std::int64_t tile, std::int64_t row,
                  std::int64_t col, int cols, const std::uint8_t* ahead) {
    const std::int64_t stride = p.weight_stride / kInt4Depth * kInt4BlockBytes;
    const std::uint8_t* const first = static_cast<const std::uint8_t*>(p.weight) + col * stride;
    const std::int64_t step = (width > 0 ? width : x.width()) * kInt4RowBytes;
    const std::uint8_t* from = x.block(tile, 0) + 4 * row;
    typename P::Constants constants;
    F sums[rows];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) sums[r] = S::zero();
    std::int64_t b = 0;
    if (cols == kCols) {
      Columns w(first, stride);
      for (; b + kInt4Group <= x.blocks(); b += kInt4Group) {
        alignas(64) float scales[kInt4Group][kCols];
        P::read_scales(constants, w, scales);
#pragma GCC unroll 4
        for (int i = 0; i < kInt4Group; ++i) {
          // Lines evenly: too many at once would wait for each other.
          if (ahead != nullptr) {
            constexpr int kBlockBytes = kCols * kInt4BlockBytes;
            constexpr int kLines = (kBlockBytes + 63) / 64;
#pragma GCC unroll 5
            for (int line = 0; line < kLines; ++line) {
              const int at = (i * kBlockBytes + 63) / 64 + line;
              if (at < ((i + 1) * kBlockBytes + 63) / 64) fetch_lines(ahead + 64 * at);
            }
          }
          add_block(x, from, w, i * kInt4BlockBytes, scales[i], sums);
          from += step;
        }
        w.step(kInt4GroupBytes);
        if (ahead != nullptr) ahead += kCols * kInt4GroupBytes;
      }
    }
    for (; b < x.blocks(); b += kInt4Group) {
      // A copy, because memory may end behind the row.
      const int count = x.blocks() - b < kInt4Group ? static_cast<int>(x.blocks() - b) : kInt4Group;
      alignas(64) std::uint8_t copy[kCols * kInt4GroupBytes] = {};
      for (int c = 0; c < cols; ++c) {
        __builtin_memcpy(copy + c * kInt4GroupBytes, first + c * stride + b * kInt4BlockBytes,
                         static_cast<std::size_t>(count * kInt4BlockBytes));
      }
      const Columns w(copy, kInt4GroupBytes);
      alignas(64) float scales[kInt4Group][kCols];
      P::read_scales(constants, w, scales);
      for (int i = 0; i < count; ++i) {
        add_block(x, from, w, i * kInt4BlockBytes, scales[i], sums);
        from += step;
      }
    }
    float* out = p.out + (tile * kPackedTile + row) * p.out_stride + col;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r, out += p.out_stride) {
      if (cols == kCols) {
        S::store(out, sums[r]);
      } else {
        S::store(out, sums[r], cols);
      }
    }
  }

 private:
  // `from`: the block of x, from its row on.
  SLUICE_INLINE static void add_block(const Int4Input& x, const std::uint8_t* from,
                                      const Columns& w, std::int64_t offset, const float* scales,
                                      F (&sums)[rows]) {
    Codes codes[kInt4Quads];
    P::read_codes(w, offset + 2, codes);
    const F scale = S::load(scales);
    const std::int64_t of_tile = width > 0 ? width : x.width();
    const auto* const x_scales = reinterpret_cast<const float*>(from);
    const auto* const numbers = reinterpret_cast<const std::int32_t*>(from) + of_tile;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const F products = P::multiply(codes, numbers + of_tile + r, of_tile, numbers[r]);
      sums[r] = S::fma(products, S::mul(scale, S::set1(x_scales[r])), sums[r]);
    }
  }
};

// The first columns of a piece, for `rows` rows of x from `row` on.
template <class P, int rows>
SLUICE_INLINE void run_int4_tile(const MatmulPiece& p, const Int4Input& x, std::int64_t row,
                                 std::int64_t col, int cols, const std::uint8_t* ahead) {
  if (x.width() == rows) return Int4Tile<P, rows, rows>::run(p, x, 0, row, col, cols, ahead);
  Int4Tile<P, rows, 0>::run(p, x, row / kPackedTile, row % kPackedTile, col, cols, ahead);
}

template <class P>
void matmul_int4(const MatmulPiece& p) {
  using S = typename P::Simd;
  constexpr int kCols = S::kLanes;
  constexpr int kRows = P::kRows;
  static_assert(kRows <= 8 && kPackedTile % kRows == 0);
  const Int4Input x(p.x, p.depth, p.row_end);
  const std::int64_t stride = p.weight_stride / kInt4Depth * kInt4BlockBytes;
  for (std::int64_t col = p.col_begin; col < p.col_end; col += kCols) {
    const std::int64_t left = p.col_end - col;
    const int cols = left < kCols ? static_cast<int>(left) : kCols;
    const std::uint8_t* ahead =
        left >= 2 * kCols ? static_cast<const std::uint8_t*>(p.weight) + (col + kCols) * stride
                          : nullptr;
    for (std::int64_t row = 0; row < p.row_end; row += kRows) {
      switch (p.row_end - row < kRows ? p.row_end - row : kRows) {
        case 1: run_int4_tile<P, 1>(p, x, row, col, cols, ahead); break;
        case 2: run_int4_tile<P, 2>(p, x, row, col, cols, ahead); break;
        case 3: run_int4_tile<P, 3>(p, x, row, col, cols, ahead); break;
        case 4: run_int4_tile<P, 4>(p, x, row, col, cols, ahead); break;
        case 5: run_int4_tile<P, (kRows < 5 ? kRows : 5)>(p, x, row, col, cols, ahead); break;
        case 6: run_int4_tile<P, (kRows < 6 ? kRows : 6)>(p, x, row, col, cols, ahead); break;
        case 7: run_int4_tile<P, (kRows < 7 ? kRows : 7)>(p, x, row, col, cols, ahead); break;
        default: run_int4_tile<P, kRows>(p, x, row, col, cols, ahead); break;
      }
      ahead = nullptr;
    }
  }
  if (p.bias != nullptr) add_bias<S>(p);
}

}  // namespace sluice::kernels
