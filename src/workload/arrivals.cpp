#include "workload/arrivals.h"

#include <fmt/format.h>

#include <cmath>

#include "workload/portable_math.h"
#include "workload/seed.h"
#include "workload/workload.h"

namespace sluice {

namespace {

// Marsaglia's polar method. It uses one number of each pair, so it needs no state.
double standard_normal(SplitMix64& random) {
  while (true) {
    const double x = 2 * random.uniform() - 1;
    const double y = 2 * random.uniform() - 1;
    const double s = x * x + y * y;
    if (s > 0 && s < 1) return x * std::sqrt(-2 * portable_log(s) / s);
  }
}

// A gamma variate of shape `shape` >= 1 and scale 1: G. Marsaglia and W. W. Tsang, "A simple
// method for generating gamma variables", ACM TOMS 26 (2000).
double gamma_from_one(SplitMix64& random, double shape) {
  const double d = shape - 1.0 / 3.0;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = standard_normal(random);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = uniform_above_zero(random);
    if (portable_log(u) < 0.5 * x * x + d - d * v + d * portable_log(v)) return d * v;
  }
}

// A gap of mean 1.
double gap(SplitMix64& random, double shape) {
  if (shape == 1) return -portable_log(uniform_above_zero(random));
  if (shape > 1) return gamma_from_one(random, shape) / shape;
  // The paper's section 6: a variate of shape + 1, times u^(1 / shape). Tiny ones become zero.
  const double g = gamma_from_one(random, shape + 1);
  const double power = portable_log(uniform_above_zero(random)) / shape;
  return power < -700 ? 0 : g * portable_exp(power) / shape;
}

// Below 0.01 nearly all requests arrive at once; above a million the gaps are equal.
constexpr double kLeastBurstiness = 0.01;
constexpr double kMostBurstiness = 1e6;

}  // namespace

Result<std::vector<Duration>> make_arrivals(const ArrivalOptions& options, std::int64_t count) {
  if (std::isnan(options.rate) || options.rate <= 0) {
    return invalid_argument(fmt::format(
        "request rate: got {}, expected a positive number of requests per second, or inf",
        options.rate));
  }
  if (!(options.burstiness >= kLeastBurstiness && options.burstiness <= kMostBurstiness)) {
    return invalid_argument(
        fmt::format("burstiness: got {}, expected a number from {} to {} (1: Poisson)",
                    options.burstiness, kLeastBurstiness, kMostBurstiness));
  }
  if (count < 1 || count > kMaxWorkloadRequests) {
    return invalid_argument(
        fmt::format("number of requests: got {}, expected 1 to {}", count, kMaxWorkloadRequests));
  }
  std::vector<Duration> arrivals(static_cast<std::size_t>(count), Duration(0));
  if (std::isinf(options.rate)) return arrivals;
  SplitMix64 random = workload_random(options.seed, WorkloadPart::kArrivals);
  double seconds = 0;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    seconds += gap(random, options.burstiness) / options.rate;
    if (!(seconds <= kLongestWorkloadSeconds)) {
      return invalid_argument(fmt::format(
          "request rate: at {} a second, {} requests would take more than thirty years; "
          "raise the rate or ask for fewer requests",
          options.rate, count));
    }
    arrivals[i] = from_seconds(seconds);
  }
  return arrivals;
}

}  // namespace sluice
