// Products of weights in INT8 on units that add four products of bytes a lane (VNNI). Sixteen
// columns of the weight are in the lanes of a vector, and four codes of a row of x in all lanes, so
// no lanes are added up. Sums are exact: their order does not matter, and results have the bits of
// DotTile in matmul.h.
//
// The codes of a line (64 bytes along K) are quads. Columns are transposed line by line: vector q
// of a line holds quad q of 16 columns. Rows of x are packed four at a time: quads q of four rows
// are together. Both have the quads of a line in the same order, which is not that of K.
//
// Up to 32 rows take 16 columns along all of K, with the sums of 16 rows in registers. Each line is
// transposed beside the products of the line before. More rows take up to 48 columns, in passes
// along K: a pass of the columns is transposed into a panel, which stays in the first-level cache
// while all rows pass by.
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
// The most rows of x whose sums stay in registers, with one vector of columns.
inline constexpr int kQuadFewRows = 16;
// A register tile of more rows.
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

// The same for 16 columns in eight parts, which may run beside other work.
template <class P>
SLUICE_INLINE void transpose_part(int part, const std::int8_t* first, std::int64_t stride,
                                  std::int8_t* quarters, std::int8_t* to) {
  using S = typename P::Simd;
  auto* const between = reinterpret_cast<float*>(quarters);
  typename S::F v[4];
  if (part < 4) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      v[c] = S::as_floats(P::template load_w<0>(first + (4 * part + c) * stride));
    }
    S::transpose_lanes(v);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) S::store(between + (4 * j + part) * 16, v[j]);
    return;
  }
  const int j = part - 4;
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) v[g] = S::load(between + (4 * j + g) * 16);
  const auto a = _mm512_shuffle_f32x4(v[0], v[1], 0x88);
  const auto b = _mm512_shuffle_f32x4(v[0], v[1], 0xDD);
  const auto c = _mm512_shuffle_f32x4(v[2], v[3], 0x88);
  const auto d = _mm512_shuffle_f32x4(v[2], v[3], 0xDD);
  auto* const out = reinterpret_cast<float*>(to) + 64 * j;
  S::store(out, _mm512_shuffle_f32x4(a, c, 0x88));
  S::store(out + 16, _mm512_shuffle_f32x4(b, d, 0x88));
  S::store(out + 32, _mm512_shuffle_f32x4(a, c, 0xDD));
  S::store(out + 48, _mm512_shuffle_f32x4(b, d, 0xDD));
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
  template <int count, class Step>
  SLUICE_INLINE static void add_quads(const std::int8_t* x, std::int64_t stride,
                                      const std::int8_t* w, Sum (&sums)[rows][vectors],
                                      const Step& step) {
#pragma GCC unroll 16
    for (int q = 0; q < count; ++q) {
      step(q);
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

  // Rows of x from p.row_begin + row on, columns from `col` on.
  SLUICE_INLINE static void store(const Sum (&sums)[rows][vectors], const MatmulPiece& p,
                                  std::int64_t row, int used, std::int64_t col, int columns,
                                  const float* scales) {
    using S = typename P::Simd;
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      if (r == used) return;
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
    if (rows <= kFewRows && lines_ <= kFewDepth) {
      pack(p_.row_begin, rows, 0, lines_);
      for (std::int64_t col = p_.col_begin; col < p_.col_end; col += S::kLanes) {
        multiply_block(rows, col);
      }
    } else {
      const std::int64_t parts = (rows + kChunk - 1) / kChunk;
      const std::int64_t chunk =
          ((rows + parts - 1) / parts + kQuadRows - 1) / kQuadRows * kQuadRows;
      for (std::int64_t row = p_.row_begin; row < p_.row_end; row += chunk) {
        multiply_chunk(row, row + chunk < p_.row_end ? chunk : p_.row_end - row, chunk);
      }
    }
    if (p_.bias != nullptr) add_bias<S>(p_);
  }

 private:
  using S = typename P::Simd;
  using Sum = typename P::Sum;
  static constexpr int kCols = kQuadVectors * S::kLanes;
  // The most rows that take 16 columns along all of K, and the lines of each.
  static constexpr std::int64_t kFewRows = kCodePassRows - 1;
  static constexpr std::int64_t kFewDepth = 256;
  // Rows that pass by a panel, and the columns whose sums wait for the next part along K.
  static constexpr std::int64_t kChunk = 256;
  static constexpr std::int64_t kBlockCols = 4 * kCols;
  // The memory of a piece: packed rows, the panel, and sums.
  static constexpr std::int64_t kPackedBytes = std::int64_t{640} << 10;
  static constexpr std::int64_t kPanelBytes = std::int64_t{260} << 10;
  static constexpr std::int64_t kCarriedBytes = kChunk * kBlockCols * 4;
  static_assert(kFewRows * kFewDepth * kQuadLine <= kPackedBytes);
  static_assert((kFewDepth + 1) * kQuadsOfLine * kQuadLine <= kPanelBytes);
  static_assert(kQuadPass * kQuadLine * kCols <= kPanelBytes);
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
      const std::int64_t n = p_.scales.block_rows == 1 ? col + c : (col + c) / p_.scales.block_rows;
      scales_[c] = p_.scales.values[n * p_.scales.stride];
    }
  }

  const std::int8_t* weight(std::int64_t col) const {
    return static_cast<const std::int8_t*>(p_.weight) + col * p_.weight_stride;
  }
  // The last columns fetch those of the next piece, or again themselves.
  const std::int8_t* after(std::int64_t col) const {
    return p_.next_weight != nullptr ? static_cast<const std::int8_t*>(p_.next_weight)
                                     : weight(col);
  }
  int line_size(std::int64_t line) const {
    const std::int64_t left = p_.depth - line * kQuadLine;
    return left < kQuadLine ? static_cast<int>(left) : static_cast<int>(kQuadLine);
  }

  // 16 columns by all rows, in groups of rows.
  void multiply_block(std::int64_t rows, std::int64_t col) {
    const std::int64_t left = p_.col_end - col;
    const int columns = left < S::kLanes ? static_cast<int>(left) : S::kLanes;
    read_scales(col, columns);
    const std::int64_t groups = (rows + kQuadFewRows - 1) / kQuadFewRows;
    const std::int64_t height =
        ((rows + groups - 1) / groups + kQuadGroup - 1) / kQuadGroup * kQuadGroup;
    Block block{.col = col,
                .columns = columns,
                .ahead = left >= 2 * S::kLanes ? weight(col + S::kLanes) : after(col)};
    for (std::int64_t row = 0; row < rows; row += height, ++block.group) {
      block.row = row;
      block.rows = static_cast<int>(row + height < rows ? height : rows - row);
      if (groups == 1) {
        multiply_group<Role::kOnly>(block);
      } else if (block.group == 0) {
        multiply_group<Role::kFirst>(block);
      } else {
        multiply_group<Role::kLater>(block);
      }
    }
  }

  // A group of rows by 16 columns.
  struct Block {
    std::int64_t col = 0;
    int columns = 0;
    const std::int8_t* ahead = nullptr;  // the next columns, to be fetched
    std::int64_t group = 0;
    std::int64_t row = 0;
    int rows = 0;
  };

  // The first group of rows transposes each line beside the products of the line before. If there
  // are more groups, the panel keeps the lines for them. Each of the first two fetches one half of
  // the next columns.
  enum class Role { kOnly, kFirst, kLater };

  template <Role role>
  void multiply_group(const Block& block) {
    switch ((block.rows + 1) / 2) {
      case 1: return multiply_group<role, 2>(block);
      case 2: return multiply_group<role, 4>(block);
      case 3: return multiply_group<role, 6>(block);
      case 4: return multiply_group<role, 8>(block);
      case 5: return multiply_group<role, 10>(block);
      case 6: return multiply_group<role, 12>(block);
      case 7: return multiply_group<role, 14>(block);
      default: return multiply_group<role, 16>(block);
    }
  }

  template <Role role, int rows>
  void multiply_group(const Block& block) {
    using Tile = QuadTile<P, rows, 1>;
    constexpr std::int64_t kStep = kQuadsOfLine * kQuadLine;
    // Quads from fetch to fetch.
    constexpr int kEvery = role == Role::kOnly ? 1 : 2;
    Sum sums[rows][1];
    Tile::clear(sums);
    const std::int64_t stride = lines_ * kQuadGroupLine;
    const std::int8_t* x = packed_ + block.row / kQuadGroup * stride;
    const std::int8_t* const first = weight(block.col);
    std::int8_t* const quarters = panel_ + kFewDepth * kStep;
    const auto place = [this](std::int64_t line) {
      return panel_ + (role == Role::kOnly ? line % 2 : line) * kStep;
    };
    const auto fill_line = [&](std::int64_t line) {
      transpose_line<P>(first + line * kQuadLine, p_.weight_stride, block.columns, line_size(line),
                        place(line), kQuadLine);
    };
    if (role != Role::kLater) fill_line(0);
    const std::int64_t whole = block.columns == S::kLanes ? p_.depth / kQuadLine : 0;
    const std::int8_t* ahead = block.ahead;
    if (role == Role::kLater) ahead += lines_ / 2 * kStep;
    for (std::int64_t line = 0; line < lines_; ++line, x += kQuadGroupLine) {
      const std::int8_t* const w = place(line);
      if (role == Role::kLater ? block.group == 1 : line + 1 < whole) {
        const std::int8_t* const next = first + (line + 1) * kQuadLine;
        std::int8_t* const to = place(line + 1);
        Tile::template add_quads<kQuadsOfLine>(x, stride, w, sums, [&](int q) {
          if (q % kEvery == 0) prefetch_second(ahead + q / kEvery * kQuadLine);
          if (role != Role::kLater && q % 2 == 0) {
            transpose_part<P>(q / 2, next, p_.weight_stride, quarters, to);
          }
        });
        ahead += kStep / kEvery;
        continue;
      }
      if (role != Role::kLater && line + 1 < lines_) fill_line(line + 1);
      Tile::template add_quads<kQuadsOfLine>(x, stride, w, sums, [](int) {});
    }
    Tile::store(sums, p_, p_.row_begin + block.row, block.rows, block.col, block.columns, scales_);
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
        const auto run = [&](auto height) {
          multiply_tile<decltype(height)::value, vectors>(strip, first, line, end);
        };
        switch (strip.rows - first) {
          case 1: run(std::integral_constant<int, 1>()); break;
          case 2: run(std::integral_constant<int, 2>()); break;
          case 3: run(std::integral_constant<int, 3>()); break;
          case 4: run(std::integral_constant<int, 4>()); break;
          case 5: run(std::integral_constant<int, 5>()); break;
          case 6: run(std::integral_constant<int, 6>()); break;
          case 7: run(std::integral_constant<int, 7>()); break;
          default: run(std::integral_constant<int, 8>()); break;
        }
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
      Tile::template add_quads<4>(x, stride, w, sums, [](int) {});
      x += kQuadLine;
      w += 4 * vectors * kQuadLine;
    }
    if (end == lines_) {
      return Tile::store(sums, p_, strip.row + first, rows, strip.col, strip.columns, scales_);
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
