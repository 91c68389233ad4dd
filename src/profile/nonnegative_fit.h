// Non-negative least squares (Lawson and Hanson's active set): the x >= 0 for which A x is nearest
// to b. For small problems with a few dozen columns. Columns may be collinear or zero.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <vector>

namespace sluice {

// A in row-major order, with `columns` values a row.
struct LeastSquares {
  std::size_t columns = 0;
  std::vector<double> a;
  std::vector<double> b;

  void add(const std::vector<double>& row, double value) {
    a.insert(a.end(), row.begin(), row.end());
    b.push_back(value);
  }
};

// `columns` values, all >= 0 and finite when the problem's are.
std::vector<double> fit_nonnegative(const LeastSquares& problem);

}  // namespace sluice
