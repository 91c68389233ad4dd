// Quantizes the inputs of products with weights in INT8 (MatmulSegment): codes from -127 to 127 and
// one scale for each row. The largest magnitude, and sums of whole numbers in floats, do not depend
// on the order, so every instruction set computes the same bits.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/rows.h"

namespace sluice::kernels {

template <class S, class As>
SLUICE_INLINE QuantizedRow quantize_row(const typename As::Element* x, std::int64_t depth,
                                        std::int8_t* codes, std::int64_t stride) {
  using F = typename S::F;
  F most = S::zero();
  F bad = S::zero();  // NaN where an element is not finite
  for_vectors<S>(depth, [&](std::int64_t i, auto... n) {
    const F v = As::load(x + i, n...);
    most = S::max(S::max(v, S::sub(S::zero(), v)), most);
    bad = S::fma(v, S::zero(), bad);
  });
  const float not_finite = sum_lanes(S::quarter_sum(bad));
  const float largest = S::max_lane(most);
  const bool zeros = not_finite != 0.0F || largest < MatmulParams::kSmallestInput;
  const F factor = S::set1(zeros ? 0.0F : 127.0F / largest);
  F sum = S::zero();
  for_vectors<S>(depth, [&](std::int64_t i, auto... n) {
    const F code = S::round(S::mul(As::load(x + i, n...), factor));
    sum = S::add(sum, code);
    S::store_codes(codes + i, code);
  });
  const std::int64_t stored = (depth + S::kLanes - 1) / S::kLanes * S::kLanes;
  for (std::int64_t i = stored; i < stride; ++i) codes[i] = 0;
  if (not_finite != 0.0F) return {not_finite, 0};
  if (zeros) return {0.0F, 0};
  return {largest / 127.0F, static_cast<std::int32_t>(sum_lanes(S::quarter_sum(sum)))};
}

template <class S>
void quantize_rows(const TensorView& x, std::int32_t begin, std::int32_t end, std::int8_t* codes,
                   std::int64_t stride, QuantizedRow* rows) {
  with_dtype<S>(x.dtype, [&](auto as) {
    using As = decltype(as);
    for (std::int32_t t = begin; t < end; ++t) {
      rows[t] = quantize_row<S, As>(row_of<As>(x, t), x.dims[1], codes + t * stride, stride);
    }
  });
}

}  // namespace sluice::kernels
