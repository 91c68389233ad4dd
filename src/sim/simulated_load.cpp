#include "sim/simulated_load.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
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
  load.spec_ = options.lengths;
  auto lengths = make_lengths(load.spec_, options.num_requests.value_or(kRequests), options.context,
                              options.seed);
  if (!lengths) return with_context("--lengths", std::move(lengths).error());
  load.lengths_ = *std::move(lengths);
  return load;
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
  return workload;
}

}  // namespace sluice
