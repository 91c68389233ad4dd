#include "workload/portable_math.h"

#include <cmath>

#include "base/check.h"

namespace sluice {

namespace {

// ln 2 in two parts, so that a multiple of it loses nothing.
constexpr double kLn2High = 0x1.62e42fefa38p-1;
constexpr double kLn2Low = 0x1.ef35793c7673p-45;

}  // namespace

double portable_log(double x) {
  CHECK(x > 0 && std::isfinite(x));
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 atanh(s), |s| <= 0.172: eleven terms of the series leave less than 2^-54.
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double tail = 0;
  for (int k = 23; k >= 3; k -= 2) tail = z * (tail + 1.0 / k);
  const double e = exponent;
  return e * kLn2High + (e * kLn2Low + 2 * (s + s * tail));
}

double portable_exp(double x) {
  CHECK(std::abs(x) <= 700);
  const double n = std::nearbyint(x * 1.4426950408889634);
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= 0.35
  double sum = 1;
  for (int k = 16; k >= 1; --k) sum = 1 + r * sum / k;
  return std::ldexp(sum, static_cast<int>(n));
}

}  // namespace sluice
