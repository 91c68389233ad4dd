// AttentionTotals: what attention of a piece's rows adds up to. The keys of a span (kAttentionSpan
// positions) are added up on their own, by an online softmax; then the spans of a row are added in
// order. So any thread may compute any span of a row, and its bits stay the same.
//
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/inline.h"
#include "device/cpu/kernels/kernel_table.h"

namespace sluice::kernels {

// A row's weighted values of a span, as a kernel has them: the vector from element i on lies at
// first + i * stride.
struct RowOutputs {
  const float* first = nullptr;
  std::int64_t stride = 1;
};

// The sums of one span of all rows: what a kernel has of a row.
struct RowSums {
  RowOutputs outputs;    // weighted values, not yet divided by the sum
  float largest = 0.0F;  // the score to which weights are relative; -inf: no key was seen
  float sum = 0.0F;      // of weights
};

// `Exp::of(x)`: the exponential function of scores, 1 for 0 and 0 for -inf.
template <class S, class Exp>
class AttentionTotals {
 public:
  using F = typename S::F;

  SLUICE_INLINE AttentionTotals(const AttentionPiece& piece, std::int32_t head_dim)
      : piece_(piece),
        rows_(piece.num_queries * piece.num_heads),
        padded_(static_cast<std::int32_t>(padded_head(head_dim))),
        span_floats_(span_sums_floats(rows_, head_dim)),
        totals_(piece.scratch + attention_scratch_floats(head_dim) -
                span_sums_floats(kMaxAttentionRows, head_dim)) {}

  // Adds up the piece's keys, span by span. For each span the kernel is told to clear_sums() and to
  // add_tile(tile, low, high) for each tile of its keys: the tile's first position, and the keys
  // [low, high) of it. Then sums_of(row) are the span's.
  template <class Kernel>
  SLUICE_INLINE void add_keys(Kernel& kernel) {
    const int spans = num_spans();
    alone_ = piece_.spans == nullptr && spans == 1;
    if (piece_.spans == nullptr && !alone_) clear();
    std::int32_t begin = piece_.first_key;
    for (int span = 0; span < spans; ++span) {
      const std::int32_t next = (begin / kAttentionSpan + 1) * kAttentionSpan;
      const std::int32_t end = next < piece_.end_key ? next : piece_.end_key;
      kernel.clear_sums();
      for (std::int32_t tile = begin / kAttentionTile * kAttentionTile; tile < end;
           tile += kAttentionTile) {
        kernel.add_tile(tile, begin > tile ? begin - tile : 0,
                        end - tile < kAttentionTile ? end - tile : kAttentionTile);
      }
      begin = end;
      if (alone_) return;
      for (int r = 0; r < rows_; ++r) {
        if (piece_.spans == nullptr) {
          add(r, kernel.sums_of(r));
        } else {
          store(span, r, kernel.sums_of(r));
        }
      }
    }
  }

  // Adds up all spans that were stored.
  SLUICE_INLINE void add_stored() {
    clear();
    const int spans = num_spans();
    for (int span = 0; span < spans; ++span) {
      const float* const sums = piece_.spans + span * span_floats_;
      for (int r = 0; r < rows_; ++r) {
        add(r, {{sums + std::int64_t{r} * padded_}, sums[largest_at(r)], sums[sum_at(r)]});
      }
    }
  }

  // Returns the sums of all keys of a row. The caller adds zero to outputs: those of a single span
  // may be -0. REQUIRES: the piece is the whole of its rows.
  template <class Kernel>
  SLUICE_INLINE RowSums total(int row, const Kernel& kernel) const {
    if (alone_) return kernel.sums_of(row);
    return {
        {totals_ + std::int64_t{row} * padded_}, totals_[largest_at(row)], totals_[sum_at(row)]};
  }

 private:
  SLUICE_INLINE int num_spans() const {
    return (piece_.end_key - 1) / kAttentionSpan + 1 - piece_.first_key / kAttentionSpan;
  }
  // In memory of span_sums_floats(): [rows][padded] weighted values, [rows] largest, [rows] sums.
  SLUICE_INLINE std::int64_t largest_at(int row) const {
    return std::int64_t{rows_} * padded_ + row;
  }
  SLUICE_INLINE std::int64_t sum_at(int row) const { return largest_at(rows_) + row; }

  void clear() {
    for (std::int64_t i = 0; i < std::int64_t{rows_} * padded_; i += S::kLanes) {
      S::store(totals_ + i, S::zero());
    }
    for (int r = 0; r < rows_; ++r) {
      totals_[largest_at(r)] = -__builtin_inff();
      totals_[sum_at(r)] = 0.0F;
    }
  }

  void store(int span, int row, const RowSums& sums) {
    float* const to = piece_.spans + span * span_floats_;
    float* const outputs = to + std::int64_t{row} * padded_;
    for (std::int32_t i = 0; i < padded_; i += S::kLanes) {
      S::store(outputs + i, S::load(sums.outputs.first + i * sums.outputs.stride));
    }
    to[largest_at(row)] = sums.largest;
    to[sum_at(row)] = sums.sum;
  }

  // A span in which the row sees no key changes nothing.
  void add(int row, const RowSums& sums) {
    const float before = totals_[largest_at(row)];
    const float now = before > sums.largest ? before : sums.largest;
    const float reference = now > -__builtin_inff() ? now : 0.0F;
    const F kept = Exp::of(S::set1(before - reference));
    const F added = Exp::of(S::set1(sums.largest - reference));
    float* const total = totals_ + std::int64_t{row} * padded_;
    for (std::int32_t i = 0; i < padded_; i += S::kLanes) {
      const F more = S::mul(S::load(sums.outputs.first + i * sums.outputs.stride), added);
      S::store(total + i, S::fma(S::load(total + i), kept, more));
    }
    float lanes[S::kLanes];
    S::store(lanes, S::fma(S::set1(totals_[sum_at(row)]), kept, S::mul(S::set1(sums.sum), added)));
    totals_[sum_at(row)] = lanes[0];
    totals_[largest_at(row)] = now;
  }

  const AttentionPiece& piece_;
  const int rows_;
  const std::int32_t padded_;
  const std::int64_t span_floats_;
  float* const totals_;
  bool alone_ = false;  // the piece has one span
};

}  // namespace sluice::kernels
