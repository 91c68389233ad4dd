#include "profile/nonnegative_fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// The normal equations of the problem with every column scaled to length 1, so that nanoseconds
// per pair of positions and nanoseconds per step have the same weight in the tolerances.
struct NormalEquations {
  std::size_t n = 0;
  std::vector<double> gram;   // n x n
  std::vector<double> right;  // n
  std::vector<double> scale;  // of the columns; 0: a column of zeros

  double at(std::size_t i, std::size_t j) const { return gram[i * n + j]; }
};

NormalEquations normal_equations(const LeastSquares& problem) {
  NormalEquations e;
  e.n = problem.columns;
  e.gram.assign(e.n * e.n, 0);
  e.right.assign(e.n, 0);
  e.scale.assign(e.n, 0);
  const std::size_t rows = problem.b.size();
  CHECK(problem.a.size() == rows * e.n);
  for (std::size_t j = 0; j < e.n; ++j) {
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += problem.a[r * e.n + j] * problem.a[r * e.n + j];
    e.scale[j] = sum > 0 ? 1 / std::sqrt(sum) : 0;
  }
  for (std::size_t r = 0; r < rows; ++r) {
    const double* row = problem.a.data() + r * e.n;
    for (std::size_t i = 0; i < e.n; ++i) {
      const double left = row[i] * e.scale[i];
      e.right[i] += left * problem.b[r];
      for (std::size_t j = 0; j < e.n; ++j) e.gram[i * e.n + j] += left * row[j] * e.scale[j];
    }
  }
  return e;
}

// The unconstrained solution over the columns in `active`, by Cholesky. The ridge keeps the
// solution for collinear columns bounded.
std::vector<double> solve(const NormalEquations& e, const std::vector<std::size_t>& active) {
  constexpr double kRidge = 1e-10;
  const std::size_t n = active.size();
  std::vector<double> l(n * n, 0);
  std::vector<double> x(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = e.at(active[i], active[j]) + (i == j ? kRidge : 0);
      for (std::size_t k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = i == j ? std::sqrt(std::max(sum, kRidge)) : sum / l[j * n + j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    double sum = e.right[active[i]];
    for (std::size_t k = 0; k < i; ++k) sum -= l[i * n + k] * x[k];
    x[i] = sum / l[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    double sum = x[i];
    for (std::size_t k = i + 1; k < n; ++k) sum -= l[k * n + i] * x[k];
    x[i] = sum / l[i * n + i];
  }
  return x;
}

class ActiveSet {
 public:
  explicit ActiveSet(const NormalEquations& e) : e_(e), x_(e.n, 0) {}

  std::vector<double> run() {
    // Each round adds the column that helps most; the limit only guards against rounding.
    for (std::size_t round = 0; round < 10 * e_.n + 10; ++round) {
      const auto best = most_helpful();
      if (best == e_.n) break;
      active_.push_back(best);
      move_to_solution();
    }
    return x_;
  }

 private:
  // The passive column with the steepest descent, or n if none reduces the error.
  std::size_t most_helpful() const {
    constexpr double kTolerance = 1e-9;
    double norm = 0;
    for (const double r : e_.right) norm = std::max(norm, std::abs(r));
    std::size_t best = e_.n;
    double steepest = kTolerance * norm;
    for (std::size_t j = 0; j < e_.n; ++j) {
      if (e_.scale[j] == 0 || std::find(active_.begin(), active_.end(), j) != active_.end()) {
        continue;
      }
      double gradient = e_.right[j];
      for (std::size_t i = 0; i < e_.n; ++i) gradient -= e_.at(j, i) * x_[i];
      if (gradient > steepest) {
        steepest = gradient;
        best = j;
      }
    }
    return best;
  }

  // Moves towards the solution over the active columns and drops the columns that reach zero.
  void move_to_solution() {
    while (!active_.empty()) {
      const std::vector<double> wanted = solve(e_, active_);
      double share = 1;
      for (std::size_t k = 0; k < active_.size(); ++k) {
        const double from = x_[active_[k]];
        if (wanted[k] <= 0) share = std::min(share, from / std::max(from - wanted[k], 1e-300));
      }
      for (std::size_t k = 0; k < active_.size(); ++k) {
        x_[active_[k]] += share * (wanted[k] - x_[active_[k]]);
      }
      if (share >= 1) return;
      std::vector<std::size_t> kept;
      for (std::size_t k = 0; k < active_.size(); ++k) {
        if (wanted[k] > 0 || x_[active_[k]] > 1e-14) {
          kept.push_back(active_[k]);
        } else {
          x_[active_[k]] = 0;
        }
      }
      active_ = std::move(kept);
    }
  }

  const NormalEquations& e_;
  std::vector<double> x_;
  std::vector<std::size_t> active_;
};

}  // namespace

std::vector<double> fit_nonnegative(const LeastSquares& problem) {
  CHECK(problem.columns > 0);
  const NormalEquations equations = normal_equations(problem);
  std::vector<double> x = ActiveSet(equations).run();
  for (std::size_t j = 0; j < x.size(); ++j) x[j] = std::max(0.0, x[j]) * equations.scale[j];
  return x;
}

}  // namespace sluice
