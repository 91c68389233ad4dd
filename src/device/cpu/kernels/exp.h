// exp for kernels: the same polynomial in every lane of every instruction set, and no call into
// libm, whose vector and scalar versions may differ.
// Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/inline.h"

namespace sluice::kernels {

// Within 2 units in the last place of e^x for x in [-87.3, 88]; 0 below, e^88 above; NaN for NaN.
template <class S>
SLUICE_INLINE typename S::F exp(typename S::F x) {
  using F = typename S::F;
  const F lowest = S::set1(-87.3F);  // e^x is a normal number from about -87.33 on
  // This order of operands propagates NaN.
  const F y = S::min(S::set1(88.0F), S::max(lowest, x));
  const F n = S::round(S::mul(y, S::set1(1.44269504F)));
  // r = y - n ln 2, |r| <= 0.35, with ln 2 in two parts: n times the first is exact.
  const F r = S::fnma(n, S::set1(-2.12194440e-4F), S::fnma(n, S::set1(0.693359375F), y));
  F e = S::set1(1.0F / 5040.0F);
  e = S::fma(e, r, S::set1(1.0F / 720.0F));
  e = S::fma(e, r, S::set1(1.0F / 120.0F));
  e = S::fma(e, r, S::set1(1.0F / 24.0F));
  e = S::fma(e, r, S::set1(1.0F / 6.0F));
  e = S::fma(e, r, S::set1(0.5F));
  e = S::fma(e, r, S::set1(1.0F));
  e = S::fma(e, r, S::set1(1.0F));
  return S::select(S::less(x, lowest), S::zero(), S::mul(e, S::pow2(n)));
}

}  // namespace sluice::kernels
