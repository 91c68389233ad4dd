// TilesAhead: fetches lines of a weight in the order in which tiles of columns read them: a pass
// of the tile's kPanelCols columns, column by column, then the next pass, then the next tile. A
// steady part of them is due for each line that is multiplied, because all at once they would wait
// for each other, and what is computed meanwhile for them.
//
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/panel_tile.h"
#include "device/cpu/kernels/prefetch.h"

namespace sluice::kernels {

// Columns of a weight in place.
struct PlacedColumns {
  static constexpr std::int64_t kLine = 64;

  // Whether each column begins with a line of memory.
  bool in_lines() const {
    return reinterpret_cast<std::uintptr_t>(first) % kLine == 0 && stride % kLine == 0;
  }

  const char* first = nullptr;  // column 0
  std::int64_t stride = 0;      // bytes from column to column
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;
  std::int64_t begin = 0;  // bytes of each column, [begin, end)
  std::int64_t end = 0;
  std::int64_t pass = 0;       // bytes of a pass
  const char* next = nullptr;  // the first column of what is read then, or null
};

class TilesAhead {
 public:
  // step() is called `groups` times for each line of a tile's columns. `columns` outlives the
  // object, which is small, so that a loop can keep a copy in registers.
  TilesAhead(const PlacedColumns& columns, std::int64_t groups)
      : columns_(&columns),
        first_(columns.first),
        col_end_(columns.col_end),
        tile_(columns.col_begin),
        col_(tile_),
        k_(columns.begin) {
    const std::int64_t lines = lines_of(columns.end - columns.begin);
    // A pass of a column takes one line more where it does not begin with one; without that the
    // fetching falls behind, tile by tile.
    const std::int64_t passes = (lines * kLine + columns.pass - 1) / columns.pass;
    const std::int64_t fetched = lines + (columns.in_lines() ? 0 : passes);
    rate_ = (kPanelCols * kWhole * fetched + groups * lines - 1) / (groups * lines);
    go_to_column();
  }

  SLUICE_INLINE void step() {
    for (due_ += rate_; due_ >= kWhole; due_ -= kWhole) fetch();
  }
  SLUICE_INLINE void step(std::int64_t lines) {
    due_ += rate_ * lines;
    fetch(due_ / kWhole);
    due_ %= kWhole;
  }
  void fetch(std::int64_t lines) {
    for (; lines > 0; --lines) fetch();
  }

 private:
  static constexpr std::int64_t kLine = PlacedColumns::kLine;
  static constexpr std::int64_t kWhole = 256;  // parts of a line

  static std::int64_t lines_of(std::int64_t bytes) { return (bytes + kLine - 1) / kLine; }

  SLUICE_INLINE void fetch() {
    if (line_ >= line_end_) return;
    prefetch_near(line_);
    line_ += kLine;
    if (line_ >= line_end_) next_column();
  }
  SLUICE_INLINE void next_column() {
    const std::int64_t left = col_end_ - tile_;
    if (++col_ == tile_ + (left < kPanelCols ? left : kPanelCols)) {
      k_ += columns_->pass;
      if (k_ >= columns_->end) {
        k_ = columns_->begin;
        tile_ += kPanelCols;
      }
      col_ = tile_;
    }
    if (tile_ < col_end_) return go_to_column();
    if (columns_->next == nullptr || first_ == columns_->next) return;
    // The first tile of what is read then.
    first_ = columns_->next;
    col_end_ = kPanelCols;
    tile_ = col_ = 0;
    go_to_column();
  }
  SLUICE_INLINE void go_to_column() {
    const char* const from = first_ + col_ * columns_->stride;
    line_ = from + k_;
    line_ -= reinterpret_cast<std::uintptr_t>(line_) % kLine;
    const std::int64_t stop = k_ + columns_->pass;
    line_end_ = from + (stop < columns_->end ? stop : columns_->end);
  }

  const PlacedColumns* columns_;
  const char* first_;     // column 0
  std::int64_t col_end_;  // of these
  std::int64_t tile_;
  std::int64_t col_;
  std::int64_t k_;
  std::int64_t rate_ = 0;  // parts of lines due at each step
  std::int64_t due_ = 0;
  const char* line_ = nullptr;
  const char* line_end_ = nullptr;
};

}  // namespace sluice::kernels
