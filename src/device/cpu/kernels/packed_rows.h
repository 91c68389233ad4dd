// Rows of x in BF16, packed for PanelTile: passes along K, in each groups of kPanelRows rows, in
// each all lines. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/panel_tile.h"

namespace sluice::kernels {

// Packs elements [k, end) of `rows` rows of x, which are `stride` elements apart: groups of
// kPanelRows rows, in each all lines.
template <class S>
void pack_pass(const std::uint16_t* x, std::int64_t stride, std::int64_t rows, std::int64_t k,
               std::int64_t end, std::uint16_t* to) {
  const std::int64_t lines = (end - k + kPanelLine - 1) / kPanelLine;
  const std::int64_t whole = (end - k) / kPanelLine;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint16_t* const from = x + r * stride + k;
    std::uint16_t* line =
        to + r / kPanelRows * lines * kPackedLineStep + r % kPanelRows * kPanelLine;
    for (std::int64_t i = 0; i < whole; ++i, line += kPackedLineStep) {
      _mm512_store_si512(line, S::load_pairs(from + i * kPanelLine));
    }
    if (whole == lines) continue;
    const auto left = static_cast<int>(end - k - whole * kPanelLine);
    _mm512_store_si512(line, S::load_pairs(from + whole * kPanelLine, left));
  }
}

inline constexpr std::int64_t panel_groups(std::int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}

// Packs tiles [begin, end) of x for all pieces of an op (KernelTable::pack_rows): passes along K,
// in each all groups of rows.
template <class S>
void pack_panels(const TensorView& x, std::int32_t rows, std::int32_t begin, std::int32_t end,
                 std::uint16_t* packed) {
  const std::int64_t depth = x.dims[1];
  const std::int64_t first = std::int64_t{begin} * kPackedTile;
  const std::int64_t last = std::int64_t{end} * kPackedTile;
  for (std::int64_t k = 0; k < depth; k += kPairsPass) {
    const std::int64_t stop = k + kPairsPass < depth ? k + kPairsPass : depth;
    const std::int64_t lines = (stop - k + kPanelLine - 1) / kPanelLine;
    pack_pass<S>(static_cast<const std::uint16_t*>(x.data) + first * x.strides[0], x.strides[0],
                 (last < rows ? last : rows) - first, k, stop,
                 packed + panel_groups(rows) * kPanelRows * k +
                     first / kPanelRows * lines * kPackedLineStep);
  }
}

// Rows of x that are packed, and elements along K.
struct PackedPart {
  std::int64_t row = 0;  // of the piece
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t end = 0;
  const std::uint16_t* x = nullptr;  // packed elements from k on
  std::int64_t all_groups = 0;       // that are packed together with these rows
  std::int64_t first_group = 0;      // of these rows

  std::int64_t groups() const { return panel_groups(rows); }
  // The pass that begins at `at` and has `lines`, of these rows.
  const std::uint16_t* pass(std::int64_t at, std::int64_t lines) const {
    return x + all_groups * kPanelRows * (at - k) + first_group * lines * kPackedLineStep;
  }
};

// The rows of x of a piece in parts. `shared`: pack_panels() packed all of them; else each part is
// packed here.
template <class S, bool shared>
class PackedRows {
 public:
  // Rows of x beside which a panel's filling is small, and which fit into a cache of 1 MiB with a
  // pass of a piece's columns.
  static constexpr std::int64_t kChunk = 256;
  static constexpr std::int64_t kElements = kChunk * kPairsPass;

  explicit PackedRows(const MatmulPiece& p)
      : p_(p), packed_(reinterpret_cast<std::uint16_t*>(p.wide)) {}

  // Calls multiply() for parts of x.
  template <class Multiply>
  void each_part(const Multiply& multiply) const {
    PackedPart part;
    for (part.row = p_.row_begin; part.row < p_.row_end; part.row += kChunk) {
      part.rows = part.row + kChunk < p_.row_end ? kChunk : p_.row_end - part.row;
      // Few rows: all passes of a tile of columns follow each other, so that rows of the weight are
      // read from their beginning to their end.
      const std::int64_t step = kElements / (part.groups() * kPanelRows * kPairsPass) * kPairsPass;
      for (part.k = 0; part.k < p_.depth; part.k += step) {
        part.end = part.k + step < p_.depth ? part.k + step : p_.depth;
        if constexpr (shared) {
          part.all_groups = panel_groups(p_.row_end);
          part.first_group = part.row / kPanelRows;
          part.x = static_cast<const std::uint16_t*>(p_.x) + part.all_groups * kPanelRows * part.k;
        } else {
          part.all_groups = part.groups();
          part.x = packed_;
          for (std::int64_t k = part.k; k < part.end; k += kPairsPass) {
            pack_pass<S>(static_cast<const std::uint16_t*>(p_.x) + part.row * p_.x_stride,
                         p_.x_stride, part.rows, k, pass_end(k),
                         packed_ + part.groups() * kPanelRows * (k - part.k));
          }
        }
        multiply(part);
      }
    }
  }

  std::int64_t pass_end(std::int64_t k) const {
    return k + kPairsPass < p_.depth ? k + kPairsPass : p_.depth;
  }
  // The memory behind the packed rows: one panel.
  std::uint16_t* panel() const { return packed_ + kElements; }

 private:
  static_assert((kElements + kPanelCols * kPairsPass) * 2 <= kManyFloats * 4);
  static_assert(kChunk % kPanelRows == 0 && kPackedTile % kPanelRows == 0);

  const MatmulPiece& p_;
  std::uint16_t* const packed_;
};

}  // namespace sluice::kernels
