#include "metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace sluice {

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)) {
  CHECK(!bounds_.empty());
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    CHECK(std::isfinite(bounds_[i]) && (i == 0 || bounds_[i - 1] < bounds_[i]));
  }
  counts_.assign(bounds_.size() + 1, 0);
}

void Histogram::record(double value, std::int64_t times) {
  DCHECK(!std::isnan(value) && times >= 0);
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<std::size_t>(bound - bounds_.begin())] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

std::optional<double> Histogram::quantile(double q) const {
  CHECK(q >= 0 && q <= 1);
  if (count_ == 0) return std::nullopt;
  const double rank = q * static_cast<double>(count_);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    const std::int64_t count = counts_[i];
    if (count == 0 || static_cast<double>(below + count) < rank) {
      below += count;
      continue;
    }
    if (i == 0 && bounds_[0] <= 0) return bounds_[0];
    const double start = i == 0 ? 0.0 : bounds_[i - 1];
    const double share = (rank - static_cast<double>(below)) / static_cast<double>(count);
    return start + (bounds_[i] - start) * share;
  }
  return bounds_.back();
}

std::vector<double> decade_bounds(std::span<const double> mantissas, double first, double last) {
  CHECK(first > 0 && first <= last);
  std::vector<double> bounds;
  const int first_exponent = static_cast<int>(std::floor(std::log10(first))) - 1;
  for (int exponent = first_exponent;; ++exponent) {
    const double power = std::pow(10.0, std::abs(exponent));
    for (const double mantissa : mantissas) {
      CHECK(mantissa >= 1 && mantissa < 10);
      // A quotient of two exact numbers is the double nearest to the decimal: it prints as such.
      const double bound = exponent < 0 ? mantissa / power : mantissa * power;
      if (bound > last) return bounds;
      if (bound >= first) bounds.push_back(bound);
    }
  }
}

}  // namespace sluice
