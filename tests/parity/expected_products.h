// The expected results of a matrix product: sums in double, and the error allowed for sums in
// float, derived from the sum of the magnitudes of the terms. Pure; any thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace sluice::parity {

struct Sums {
  std::size_t width = 0;  // of a row
  std::vector<double> values;
  std::vector<double> tolerance;
};

// x [rows, depth] times weight [width, depth], transposed, and bias [width] or none:
// [rows, width].
template <class Element>
Sums expected_products(std::span<const float> x, std::span<const Element> weight,
                       std::span<const float> bias, std::size_t depth) {
  Sums sums;
  sums.width = weight.size() / depth;
  for (std::size_t r = 0; r < x.size() / depth; ++r) {
    for (std::size_t c = 0; c < sums.width; ++c) {
      double sum = bias.empty() ? 0.0 : bias[c];
      double magnitude = std::abs(sum);
      for (std::size_t k = 0; k < depth; ++k) {
        const double term = double{x[r * depth + k]} * weight[c * depth + k];
        sum += term;
        magnitude += std::abs(term);
      }
      sums.values.push_back(sum);
      sums.tolerance.push_back(magnitude * (static_cast<double>(depth) / 8 + 8) * 0x1p-24);
    }
  }
  return sums;
}

// Into columns from `column` on of `to`, whose width is set; rows that it lacks are made.
inline void put_columns(const Sums& from, std::size_t column, Sums& to) {
  const std::size_t rows = from.values.size() / from.width;
  to.values.resize(rows * to.width);
  to.tolerance.resize(rows * to.width);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < from.width; ++c) {
      to.values[r * to.width + column + c] = from.values[r * from.width + c];
      to.tolerance[r * to.width + column + c] = from.tolerance[r * from.width + c];
    }
  }
}

}  // namespace sluice::parity
