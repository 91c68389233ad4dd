// Products of weights in INT8 on units that add four products of bytes a lane (VNNI). Sixteen
// columns of the weight are in the lanes of a vector, and four codes of a row of x in all lanes, so
// no lanes are added up. Sums are exact: their order does not matter, and results have the bits of
// DotTile in matmul.h.
//
// The codes of a line (64 bytes along K) are quads. Columns are transposed line by line: vector q
// of a line holds quad q of 16 columns. Rows of x are packed four at a time: quads q of four rows
// are together. Both have the quads of a line in the same order, which is not that of K.
//
// Rows take up to 48 columns, in passes along K: a pass of the columns is transposed into a panel,
// which stays in the first-level cache while all rows pass by. Few rows: codes_in_place.h.
//
// `P`: a policy of matmul.h, of one instruction set. Included by kernels_avx512_vnni.cpp only; see
// simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

inline constexpr std::int64_t kQuadLine = 64;  // codes, or bytes
inline constexpr int kQuadsOfLine = 16;
// Rows of x that are packed together, and the bytes of a line of them.
inline constexpr int kQuadGroup = 4;
inline constexpr std::int64_t kQuadGroupLine = kQuadGroup * kQuadLine;
// A register tile.
inline constexpr int kQuadRows = 8;
inline constexpr int kQuadVectors = 3;
// A pass along K that a panel holds, in lines.
inline constexpr std::int64_t kQuadPass = 8;
// The elements along K of the columns of a piece that are in the second-level cache together.
inline constexpr std::int64_t kCodePass = 1024;

// Writes the quads of a line of up to 16 columns, which are `stride` bytes apart, to vectors `step`
// bytes apart. `n`: the codes of the line.
template <class P>
SLUICE_INLINE void transpose_line(const std::int8_t* first, std::int64_t stride, int columns, int n,
                                  std::int8_t* to, std::int64_t step) {
  using S = typename P::Simd;
  typename S::F v[kQuadsOfLine];
  if (columns == kQuadsOfLine && n == kQuadLine) {
#pragma GCC unroll 16
    for (int c = 0; c < kQuadsOfLine; ++c) {
      v[c] = S::as_floats(P::template load_w<0>(first + c * stride));
    }
  } else {
#pragma GCC unroll 16
    for (int c = 0; c < kQuadsOfLine; ++c) {
      v[c] = c < columns ? n == kQuadLine
                               ? S::as_floats(P::template load_w<0>(first + c * stride))
                               : S::as_floats(P::template load_w<0>(first + c * stride, n))
                         : S::zero();
    }
  }
  S::transpose(v);
#pragma GCC unroll 16
  for (int q = 0; q < kQuadsOfLine; ++q) {
    S::store(reinterpret_cast<float*>(to + q * step), v[q % 4 * 4 + q / 4]);
  }
}

// Sums of `rows` rows by `vectors` times 16 columns.
template <class P, int rows, int vectors>
struct QuadTile {
  using Sum = typename P::Sum;
  static constexpr int kGroups = (rows + kQuadGroup - 1) / kQuadGroup;

  SLUICE_INLINE static void clear(Sum (&sums)[rows][vectors]) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = Sum{};
    }
  }

  // Adds `count` quads. Groups of x are `stride` bytes apart.
  template <int count>
  SLUICE_INLINE static void add_quads(const std::int8_t* x, std::int64_t stride,
                                      const std::int8_t* w, Sum (&sums)[rows][vectors]) {
#pragma GCC unroll 16
    for (int q = 0; q < count; ++q) {
      __m512i columns[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        columns[v] = _mm512_load_si512(w + (q * vectors + v) * kQuadLine);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        std::int32_t quad = 0;
        __builtin_memcpy(&quad, x + r / kQuadGroup * stride + 16 * q + r % kQuadGroup * 4, 4);
        const __m512i row = _mm512_set1_epi32(quad);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sums[r][v] = P::multiply_add(row, columns[v], sums[r][v]);
        }
      }
    }
  }

  // Rows of x from `row` on, columns from `col` on.
  SLUICE_INLINE static void store(const Sum (&sums)[rows][vectors], const MatmulPiece& p,
                                  std::int64_t row, std::int64_t col, int columns,
                                  const float* scales) {
    using S = typename P::Simd;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const QuantizedRow x = p.x_rows[row + r];
      float* const out = p.out + (row + r) * p.out_stride + col;
      const __m512i offset = _mm512_set1_epi32(P::kOffset * x.sum);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const __m512i sum = _mm512_sub_epi32(reinterpret_cast<__m512i>(sums[r][v]), offset);
        const auto value = S::mul(_mm512_cvtepi32_ps(sum),
                                  S::mul(S::set1(x.scale), S::load(scales + v * S::kLanes)));
        const int left = columns - v * S::kLanes;
        if (left >= S::kLanes) {
          S::store(out + v * S::kLanes, value);
        } else {
          S::store(out + v * S::kLanes, value, left);
        }
      }
    }
  }
};

template <class P>
class QuadProducts {
 public:
  explicit QuadProducts(const MatmulPiece& p)
      : p_(p),
        lines_((p.depth + kQuadLine - 1) / kQuadLine),
        packed_(reinterpret_cast<std::int8_t*>(p.wide)),
        panel_(packed_ + kPackedBytes),
        carried_(panel_ + kPanelBytes) {}

  void run() {
    const std::int64_t rows = p_.row_end - p_.row_begin;
    const std::int64_t parts = (rows + kChunk - 1) / kChunk;
    const std::int64_t chunk = ((rows + parts - 1) / parts + kQuadRows - 1) / kQuadRows * kQuadRows;
    for (std::int64_t row = p_.row_begin; row < p_.row_end; row += chunk) {
      multiply_chunk(row, row + chunk < p_.row_end ? chunk : p_.row_end - row, chunk);
    }
    if (p_.bias != nullptr) add_bias<S>(p_);
  }

 private:
  using S = typename P::Simd;
  using Sum = typename P::Sum;
  static constexpr int kCols = kQuadVectors * S::kLanes;
  // Rows that pass by a panel, and the columns whose sums wait for the next part along K.
  static constexpr std::int64_t kChunk = 256;
  static constexpr std::int64_t kBlockCols = 4 * kCols;
  // The memory of a piece: packed rows, the panel, and sums.
  static constexpr std::int64_t kPackedBytes = std::int64_t{640} << 10;
  static constexpr std::int64_t kPanelBytes = kQuadPass * kQuadLine * kCols;
  static constexpr std::int64_t kCarriedBytes = kChunk * kBlockCols * 4;
  static_assert(kPackedBytes + kPanelBytes + kCarriedBytes <= kManyFloats * 4);

  // Packs lines [begin, end).
  void pack(std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t end) {
    std::int8_t* to = packed_;
    for (std::int64_t r = 0; r < rows; r += kQuadGroup) {
      const std::int8_t* x[kQuadGroup];
      for (int i = 0; i < kQuadGroup; ++i) {
        // Rows behind the last one are multiplied, too, and not stored.
        const std::int64_t at = r + i < rows ? row + r + i : row + rows - 1;
        x[i] = static_cast<const std::int8_t*>(p_.x) + at * p_.x_stride;
      }
      for (std::int64_t line = begin; line < end; ++line, to += kQuadGroupLine) {
        typename S::F v[kQuadGroup];
#pragma GCC unroll 4
        for (int i = 0; i < kQuadGroup; ++i) {
          v[i] = S::as_floats(_mm512_loadu_si512(x[i] + line * kQuadLine));
        }
        S::transpose_lanes(v);
#pragma GCC unroll 4
        for (int i = 0; i < kQuadGroup; ++i) {
          S::store(reinterpret_cast<float*>(to + i * kQuadLine), v[i]);
        }
      }
    }
  }

  void read_scales(std::int64_t col, int columns) {
    for (int c = 0; c < columns; ++c) {
      scales_[c] = scale_of_column(p_, col + c);
    }
  }

  const std::int8_t* weight(std::int64_t col) const {
    return static_cast<const std::int8_t*>(p_.weight) + col * p_.weight_stride;
  }
  int line_size(std::int64_t line) const {
    const std::int64_t left = p_.depth - line * kQuadLine;
    return left < kQuadLine ? static_cast<int>(left) : static_cast<int>(kQuadLine);
  }

  // Fetches the columns for the next panel.
  FetchInParts fetch_ahead(std::int64_t col, std::int64_t line, std::int64_t parts) const {
    const bool behind = col >= p_.col_end;
    if (behind && p_.next_weight == nullptr) return {};
    const std::int64_t left = behind ? kCols : p_.col_end - col;
    const std::int64_t rest = lines_ - line;
    const auto* const first =
        behind ? static_cast<const std::int8_t*>(p_.next_weight) : weight(col);
    return {first + line * kQuadLine, (rest < kQuadPass ? rest : kQuadPass) * kQuadLine,
            p_.weight_stride, left < kCols ? left : kCols, parts};
  }

  // Rows [row, row + rows), in parts along K whose rows of x stay in the second-level cache.
  void multiply_chunk(std::int64_t row, std::int64_t rows, std::int64_t chunk) {
    std::int64_t part = kPackedBytes / (chunk * kQuadLine) / kQuadPass * kQuadPass;
    if (part >= lines_) part = lines_;
    // If there is one part only, the sums of a tile of columns wait for their next pass alone.
    const std::int64_t width = part < lines_ ? kBlockCols : p_.col_end - p_.col_begin;
    for (std::int64_t block = p_.col_begin; block < p_.col_end; block += width) {
      const std::int64_t block_end = block + width < p_.col_end ? block + width : p_.col_end;
      for (std::int64_t begin = 0; begin < lines_; begin += part) {
        const std::int64_t end = begin + part < lines_ ? begin + part : lines_;
        pack(row, rows, begin, end);
        for (std::int64_t col = block; col < block_end; col += kCols) {
          const std::int64_t left = block_end - col;
          const Strip strip{.row = row,
                            .rows = rows,
                            .col = col,
                            .columns = left < kCols ? static_cast<int>(left) : kCols,
                            .begin = begin,
                            .end = end,
                            .carried = carried_ + (part < lines_ ? (col - block) * chunk * 4 : 0)};
          read_scales(col, strip.columns);
          switch ((strip.columns + S::kLanes - 1) / S::kLanes) {
            case 1: multiply_columns<1>(strip); break;
            case 2: multiply_columns<2>(strip); break;
            default: multiply_columns<3>(strip); break;
          }
        }
      }
    }
  }

  // A tile of columns by the rows of a chunk, over lines [begin, end) of K.
  struct Strip {
    std::int64_t row = 0;
    std::int64_t rows = 0;
    std::int64_t col = 0;
    int columns = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int8_t* carried = nullptr;
  };

  template <int vectors>
  void multiply_columns(const Strip& strip) {
    const std::int64_t tiles = (strip.rows + kQuadRows - 1) / kQuadRows;
    for (std::int64_t line = strip.begin; line < strip.end; line += kQuadPass) {
      const std::int64_t end = line + kQuadPass < strip.end ? line + kQuadPass : strip.end;
      FetchInParts ahead = end < strip.end ? fetch_ahead(strip.col, end, tiles)
                                           : fetch_ahead(strip.col + kCols, strip.begin, tiles);
      fill<vectors>(strip.col, strip.columns, line, end);
      for (std::int64_t first = 0; first < strip.rows; first += kQuadRows) {
        ahead.fetch();
        with_count<kQuadRows>(strip.rows - first, [&](auto height) {
          multiply_tile<decltype(height)::value, vectors>(strip, first, line, end);
        });
      }
    }
  }

  template <int vectors>
  void fill(std::int64_t col, int columns, std::int64_t line, std::int64_t end) {
    for (std::int8_t* to = panel_; line < end; ++line) {
      for (int v = 0; v < vectors; ++v) {
        const int left = columns - v * S::kLanes;
        transpose_line<P>(weight(col + v * S::kLanes) + line * kQuadLine, p_.weight_stride,
                          left < S::kLanes ? left : S::kLanes, line_size(line), to + v * kQuadLine,
                          vectors * kQuadLine);
      }
      to += kQuadsOfLine * vectors * kQuadLine;
    }
  }

  template <int rows, int vectors>
  void multiply_tile(const Strip& strip, std::int64_t first, std::int64_t line, std::int64_t end) {
    using Tile = QuadTile<P, rows, vectors>;
    Sum sums[rows][vectors];
    std::int8_t* const carried = strip.carried + first * vectors * kQuadLine;
    if (line == 0) {
      Tile::clear(sums);
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
          sums[r][v] =
              reinterpret_cast<Sum>(_mm512_load_si512(carried + (r * vectors + v) * kQuadLine));
        }
      }
    }
    const std::int64_t stride = (strip.end - strip.begin) * kQuadGroupLine;
    const std::int8_t* x =
        packed_ + first / kQuadGroup * stride + (line - strip.begin) * kQuadGroupLine;
    const std::int8_t* w = panel_;
    for (std::int64_t i = 4 * line; i < 4 * end; ++i) {
      Tile::template add_quads<4>(x, stride, w, sums);
      x += kQuadLine;
      w += 4 * vectors * kQuadLine;
    }
    if (end == lines_) {
      return Tile::store(sums, p_, strip.row + first, strip.col, strip.columns, scales_);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        _mm512_store_si512(carried + (r * vectors + v) * kQuadLine,
                           reinterpret_cast<__m512i>(sums[r][v]));
      }
    }
  }

  const MatmulPiece& p_;
  const std::int64_t lines_;
  std::int8_t* const packed_;
  std::int8_t* const panel_;
  std::int8_t* const carried_;
  alignas(64) float scales_[kCols] = {};
};

}  // namespace sluice::kernels
