#include "function_sim/function_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "workload/arrivals.h"

namespace sluice {
namespace {

constexpr std::uint64_t kFunctionSeed = 0x9e3779b97f4a7c15;

std::int32_t length_near(std::int32_t mean, SplitMix64& random) {
  const double length = mean * (0.5 + random.uniform());
  return std::max(1, static_cast<std::int32_t>(std::lround(length)));
}

}  // namespace

Result<double> cov_of_class(std::string_view name) {
  if (name == "predictable") return 0.7;
  if (name == "normal") return 2.0;
  if (name == "bursty") return 6.0;
  return invalid_argument(
      fmt::format("there is no class '{}'; expected predictable, normal or bursty", name));
}

Result<std::vector<FunctionCall>> make_calls(const CallOptions& options) {
  if (!(options.cov > 0) || options.cov > 100) {
    return invalid_argument("the CoV of gaps must be above 0 and at most 100");
  }
  const double expected = options.rate * options.seconds;
  if (!(expected > 0) || expected * options.functions > 1e8) {
    return invalid_argument("rate, seconds and functions must give from one to 100,000,000 calls");
  }
  std::vector<FunctionCall> calls;
  for (std::int32_t f = 0; f < options.functions; ++f) {
    const std::uint64_t seed = options.seed + kFunctionSeed * static_cast<std::uint64_t>(f + 1);
    ArrivalOptions arrivals;
    arrivals.rate = options.rate;
    arrivals.burstiness = 1 / (options.cov * options.cov);
    arrivals.seed = seed;
    // More than are expected, since gaps that vary much may begin with many short ones.
    const auto count = static_cast<std::int64_t>(expected * 2 + 20 * options.cov * options.cov);
    ASSIGN_OR_RETURN(const std::vector<Duration> times, make_arrivals(arrivals, count));
    SplitMix64 random(seed + 1);
    // Otherwise all functions would be called at the start.
    const Duration offset = from_seconds(random.uniform() / options.rate);
    for (const Duration time : times) {
      if (to_seconds(time + offset) >= options.seconds) break;
      calls.push_back({time + offset, f, length_near(options.prompt_tokens, random),
                       length_near(options.output_tokens, random)});
    }
  }
  std::ranges::stable_sort(calls, {}, &FunctionCall::arrival);
  return calls;
}

std::vector<FunctionCall> deal_calls(const Workload& trace, std::int32_t functions,
                                     std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<FunctionCall> calls;
  for (const WorkloadRequest& request : trace.requests) {
    const std::uint64_t function = random.below(static_cast<std::uint64_t>(functions));
    calls.push_back({request.arrival, static_cast<std::int32_t>(function), request.prompt_tokens,
                     request.output_tokens});
  }
  return calls;
}

}  // namespace sluice
