#include "workload/arrivals.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

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

namespace {

constexpr double kLongestStep = 1e7;  // seconds
constexpr double kLargestRate = 1e6;

std::optional<double> positive_number(std::string_view text, double most) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  if (!whole || !(value > 0 && value <= most)) return std::nullopt;
  return value;
}

}  // namespace

Result<std::vector<RateStep>> parse_rate_steps(std::string_view text) {
  std::vector<RateStep> steps;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t cross = part.find('x');
    const auto rate = positive_number(part.substr(0, cross), kLargestRate);
    const auto seconds = cross == std::string_view::npos
                             ? std::nullopt
                             : positive_number(part.substr(cross + 1), kLongestStep);
    if (!rate || !seconds) {
      return invalid_argument(fmt::format(
          "'{}' is no step; write RATExSECONDS with commas between steps, such as 2x60,10x30",
          part));
    }
    steps.push_back({*rate, *seconds});
    if (comma == std::string_view::npos) return steps;
    text.remove_prefix(comma + 1);
  }
}

Result<std::vector<Duration>> make_step_arrivals(const std::vector<RateStep>& steps,
                                                 const ArrivalOptions& options) {
  double total = 0;
  for (const RateStep& step : steps) total += step.rate * step.seconds;
  if (total >= static_cast<double>(kMaxWorkloadRequests)) {
    return invalid_argument(fmt::format("the steps have {:.3g} requests; at most {} are simulated",
                                        total, kMaxWorkloadRequests));
  }
  ArrivalOptions even = options;
  even.rate = 1;
  std::vector<Duration> arrivals;
  // The variance of the number grows with burstier gaps; the loop asks again when it was too few.
  for (std::int64_t count = std::llround(total * 1.2) + 16;; count *= 2) {
    ASSIGN_OR_RETURN(arrivals, make_arrivals(even, count));
    if (to_seconds(arrivals.back()) >= total) break;
  }
  std::vector<Duration> times;
  double begun = 0;  // requests of earlier steps
  double start = 0;  // of the step, in seconds
  std::size_t step = 0;
  for (const Duration arrival : arrivals) {
    const double number = to_seconds(arrival);
    while (step < steps.size() && number >= begun + steps[step].rate * steps[step].seconds) {
      begun += steps[step].rate * steps[step].seconds;
      start += steps[step].seconds;
      ++step;
    }
    if (step == steps.size()) break;
    times.push_back(from_seconds(start + (number - begun) / steps[step].rate));
  }
  return times;
}

}  // namespace sluice
