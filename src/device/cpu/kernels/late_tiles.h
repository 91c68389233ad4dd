// LateTiles: register tiles of many rows of x, in BF16 on units that multiply pairs of BF16. The
// lanes of a tile's sums are added while the next tile is multiplied. To add 24 vectors takes a
// tenth of the time of a pass's products, and a core does not look far enough ahead to begin with
// the next products meanwhile, unless they are between the additions in the code.
//
// A tile is kPanelRows rows of a packed group by kPanelCols columns, over one pass; sums are those
// of PanelTile. Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/panel_tile.h"

namespace sluice::kernels {

template <class S>
class LateTiles {
 public:
  using F = typename S::F;

  // Multiplies a tile, whose sums go to `out` or, unless `first`, are added there: not before the
  // next multiply() or finish(). `columns` and x: as PanelTile::run(). ahead.step(lines) is called
  // a few times.
  template <class Columns, class Ahead>
  SLUICE_INLINE void multiply(const std::uint16_t* x, Columns columns, std::int64_t lines,
                              Ahead& ahead, bool first, float* out, std::int64_t stride) {
    F sums[kPanelRows][kPanelCols] = {};
    const std::int64_t part = lines / kParts;
    for (int c = 0; c < kPanelCols; ++c) {
      multiply_lines(x, columns, part, ahead, sums);
      add_quarters(c);
    }
    multiply_lines(x, columns, part, ahead, sums);
    if (out_ != nullptr) add_lanes();
    multiply_lines(x, columns, lines - (kParts - 1) * part, ahead, sums);
    keep(sums);
    out_ = out;
    stride_ = stride;
    first_ = first;
  }

  // The sums of the last tile go to their place.
  void finish() {
    if (out_ == nullptr) return;
    for (int c = 0; c < kPanelCols; ++c) add_quarters(c);
    add_lanes();
    out_ = nullptr;
  }

 private:
  // A pass has a part beside each step of the additions, and the rest.
  static constexpr int kParts = kPanelCols + 2;
  static constexpr int kLanes = S::kLanes;

  template <class Columns, class Ahead>
  SLUICE_INLINE static void multiply_lines(const std::uint16_t*& x, Columns& columns,
                                           std::int64_t count, Ahead& ahead,
                                           F (&sums)[kPanelRows][kPanelCols]) {
    ahead.step(count);
    for (const std::uint16_t* const end = x + count * kPackedLineStep; x != end;
         x += kPackedLineStep, columns.step()) {
      PanelTile<S, kPanelRows>::add_line(x, columns, sums);
    }
  }

  SLUICE_INLINE void keep(const F (&sums)[kPanelRows][kPanelCols]) {
#pragma GCC unroll 8
    for (int c = 0; c < kPanelCols; ++c) {
#pragma GCC unroll 4
      for (int r = 0; r < kPanelRows; ++r) {
        S::store(sums_ + (c * kPanelRows + r) * kLanes, sums[r][c]);
      }
    }
  }

  SLUICE_INLINE void add_quarters(int c) {
    const float* const rows = sums_ + c * kPanelRows * kLanes;
    S::store(quarters_ + c * kLanes,
             S::quarter_sums(S::load(rows), S::load(rows + kLanes), S::load(rows + 2 * kLanes),
                             S::load(rows + 3 * kLanes)));
  }

  SLUICE_INLINE void add_lanes() const {
    const auto quarters = [this](int c) { return S::load(quarters_ + c * kLanes); };
    const F four = S::lane_sums(quarters(0), quarters(1), quarters(2), quarters(3));
    const F two = S::lane_sums(quarters(4), quarters(5), quarters(4), quarters(5));
    PanelTile<S, kPanelRows>::put(four, two, first_, kPanelCols, out_, stride_);
  }

  alignas(64) float sums_[kPanelCols * kPanelRows * kLanes] = {};  // by columns
  alignas(
      64) float quarters_[kPanelCols * kLanes] = {};  // of columns: lane i of quarter r is of row r
  float* out_ = nullptr;                              // null: no tile is kept
  std::int64_t stride_ = 0;
  bool first_ = true;
};

}  // namespace sluice::kernels
