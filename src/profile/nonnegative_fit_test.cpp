#include "profile/nonnegative_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace sluice {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

double error_of(const LeastSquares& problem, const std::vector<double>& x) {
  double error = 0;
  for (std::size_t r = 0; r < problem.b.size(); ++r) {
    double sum = -problem.b[r];
    for (std::size_t j = 0; j < x.size(); ++j) sum += problem.a[r * problem.columns + j] * x[j];
    error += sum * sum;
  }
  return error;
}

TEST(NonnegativeFitTest, ExactWhenThereIsASolution) {
  LeastSquares problem{.columns = 3, .a = {}, .b = {}};
  for (double t = 1; t < 10; ++t) problem.add({1, t, t * t}, 4 + 2 * t + 0.5 * t * t);
  EXPECT_THAT(fit_nonnegative(problem),
              ElementsAre(DoubleNear(4, 1e-3), DoubleNear(2, 1e-3), DoubleNear(0.5, 1e-4)));
}

TEST(NonnegativeFitTest, ANegativeCoefficientBecomesZeroAndTheOthersMakeUpForIt) {
  LeastSquares problem{.columns = 2, .a = {}, .b = {}};
  for (double t = 1; t < 10; ++t) problem.add({1, t}, 3 * t - 5);
  const auto x = fit_nonnegative(problem);
  EXPECT_EQ(x[0], 0);
  double tt = 0;
  double tb = 0;
  for (double t = 1; t < 10; ++t) {
    tt += t * t;
    tb += t * (3 * t - 5);
  }
  EXPECT_NEAR(x[1], tb / tt, 1e-6);
}

TEST(NonnegativeFitTest, ZeroAndCollinearColumnsDoNoHarm) {
  LeastSquares problem{.columns = 4, .a = {}, .b = {}};
  for (double t = 1; t < 20; ++t) problem.add({t, 2 * t, 0, 1e9 * t * t}, 6 * t + 7e9 * t * t);
  const auto x = fit_nonnegative(problem);
  EXPECT_EQ(x[2], 0);
  EXPECT_NEAR(x[3], 7, 1e-3);
  for (const double value : x) EXPECT_TRUE(std::isfinite(value) && value >= 0);
}

TEST(NonnegativeFitTest, NothingToFitGivesZeros) {
  LeastSquares problem{.columns = 2, .a = {}, .b = {}};
  EXPECT_THAT(fit_nonnegative(problem), ElementsAre(0, 0));
  problem.add({1, 1}, -3);
  EXPECT_THAT(fit_nonnegative(problem), ElementsAre(0, 0));
}

// Random problems: no step in any allowed direction from the answer makes the error smaller.
TEST(NonnegativeFitTest, IsTheBestAmongItsNeighbours) {
  SplitMix64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    LeastSquares problem{.columns = 1 + random.below(8), .a = {}, .b = {}};
    for (int r = 0; r < 30; ++r) {
      std::vector<double> row(problem.columns);
      for (double& value : row) value = random.uniform() * 2 - 0.5;
      problem.add(row, random.uniform() * 2 - 0.7);
    }
    const auto x = fit_nonnegative(problem);
    const double error = error_of(problem, x);
    for (std::size_t j = 0; j < x.size(); ++j) {
      for (const double step : {-1e-3, 1e-3}) {
        auto moved = x;
        moved[j] = std::max(0.0, moved[j] + step);
        ASSERT_GE(error_of(problem, moved), error - 1e-7) << "trial " << trial << " column " << j;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
