#include "sim/simulated_load.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "workload/arrivals.h"

namespace sluice {
namespace {

constexpr std::int64_t kRequests = 2048;  // as the paper's capacity searches

}  // namespace

Result<SimulatedLoad> SimulatedLoad::make(const SimulatedLoadOptions& options) {
  SimulatedLoad load;
  load.burstiness_ = options.burstiness;
  load.seed_ = options.seed;
  if (!options.trace.empty()) {
    auto trace = read_trace(options.trace, {.max_requests = options.num_requests.value_or(0),
                                            .max_total = options.context,
                                            .too_long = options.too_long,
                                            .rate_scale = options.rate_scale,
                                            .length_scale = options.length_scale});
    if (!trace) return with_context("--trace", std::move(trace).error());
    load.trace_ = *std::move(trace);
    return load;
  }
  load.spec_ = name_of_lengths(options.lengths, options.length_scale);
  load.prefix_tokens_ = options.prefix_tokens;
  load.prefixes_ = options.prefixes;
  if (options.prefix_tokens % kPrefixPieceTokens != 0 || options.prefix_tokens >= options.context) {
    return invalid_argument(
        fmt::format("--shared-prefix must be a multiple of {} below the context of {}, got {}",
                    kPrefixPieceTokens, options.context, options.prefix_tokens));
  }
  std::vector<Duration> times;
  if (!options.rate_steps.empty()) {
    auto steps = parse_rate_steps(options.rate_steps);
    if (!steps) return with_context("--rate-steps", std::move(steps).error());
    auto made =
        make_step_arrivals(*steps, {.burstiness = options.burstiness, .seed = options.seed});
    if (!made) return with_context("--rate-steps, --burstiness", std::move(made).error());
    times = *std::move(made);
  }
  const auto count = options.rate_steps.empty() ? options.num_requests.value_or(kRequests)
                                                : static_cast<std::int64_t>(times.size());
  auto lengths = make_lengths(options.lengths, count, options.context - options.prefix_tokens,
                              options.seed, nullptr, options.length_scale);
  if (!lengths) return with_context("--lengths", std::move(lengths).error());
  load.lengths_ = *std::move(lengths);
  if (options.rate_steps.empty()) return load;
  Workload workload;
  workload.source =
      fmt::format("{} lengths, {} requests per second x seconds", load.spec_, options.rate_steps);
  workload.requests = requests_of(load.lengths_, times);
  load.add_prefixes(workload);
  load.trace_ = std::move(workload);
  return load;
}

// A prefix's name is its number and its piece's, so that prefixes share nothing with each other.
void SimulatedLoad::add_prefixes(Workload& workload) const {
  if (prefix_tokens_ == 0) return;
  SplitMix64 random(seed_ ^ 0x9E3779B97F4A7C15ULL);
  for (WorkloadRequest& request : workload.requests) {
    const std::uint64_t prefix = random.below(static_cast<std::uint64_t>(prefixes_));
    for (std::int32_t t = 0; t < prefix_tokens_; t += kPrefixPieceTokens) {
      request.prefix_pieces.push_back((prefix << 32) | static_cast<std::uint64_t>(t));
    }
    request.prompt_tokens += prefix_tokens_;
  }
  workload.source += fmt::format(", {} prefixes of {} tokens", prefixes_, prefix_tokens_);
}

Result<Workload> SimulatedLoad::at_rate(double rate) const {
  CHECK(!has_times());
  ArrivalOptions options;
  options.rate = rate;
  options.burstiness = burstiness_;
  options.seed = seed_;
  const auto times = make_arrivals(options, static_cast<std::int64_t>(lengths_.size()));
  if (!times) return with_context("--qps, --burstiness", times.error());
  Workload workload;
  workload.source = fmt::format("{} lengths, {:.4g} requests per second", spec_, rate);
  workload.requests = requests_of(lengths_, *times);
  add_prefixes(workload);
  return workload;
}

}  // namespace sluice
