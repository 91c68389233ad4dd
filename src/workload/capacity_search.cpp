#include "workload/capacity_search.h"

#include <fmt/format.h>

#include <cmath>

namespace sluice {

namespace {

Status check_options(const CapacityOptions& options) {
  if (options.objective.p99_tbt <= Duration(0)) {
    return invalid_argument(fmt::format("P99 TBT objective: got {} ms, expected more than 0",
                                        to_milliseconds(options.objective.p99_tbt)));
  }
  if (options.objective.ttft && *options.objective.ttft <= Duration(0)) {
    return invalid_argument(fmt::format("TTFT objective: got {} ms, expected more than 0",
                                        to_milliseconds(*options.objective.ttft)));
  }
  if (options.objective.median_scheduling_delay < Duration(0)) {
    return invalid_argument(
        fmt::format("median scheduling delay objective: got {} ms, expected at least 0",
                    to_milliseconds(options.objective.median_scheduling_delay)));
  }
  if (!(options.start_rate > 0) || std::isinf(options.start_rate)) {
    return invalid_argument(
        fmt::format("start rate: got {}, expected a positive number of requests per second",
                    options.start_rate));
  }
  if (!(options.resolution > 0 && options.resolution < 1)) {
    return invalid_argument(
        fmt::format("resolution: got {}, expected a share of the rate between 0 and 1, as 0.025",
                    options.resolution));
  }
  if (options.max_probes < 1) {
    return invalid_argument(
        fmt::format("probes: got at most {}, expected at least 1", options.max_probes));
  }
  return {};
}

bool meets(const CapacityObjective& objective, const CapacityProbe& probe) {
  return probe.p99_tbt <= objective.p99_tbt &&
         probe.median_scheduling_delay <= objective.median_scheduling_delay &&
         (!objective.ttft || probe.ttft <= *objective.ttft);
}

// The rate to probe next; 0: the search is over.
double next_rate(const CapacityOptions& options, const CapacityResult& so_far) {
  // Halving once is enough if the start was slightly too high; after that the rate is quartered.
  constexpr double kLeastShare = 1.0 / 1024;
  const double met = so_far.rate;
  const double failed = so_far.failing_rate;
  if (so_far.probes.empty()) return options.start_rate;
  if (failed == 0) return met * 2;
  if (met == 0) {
    const double least = options.start_rate * kLeastShare;
    if (failed <= least) return 0;
    return std::max(failed == options.start_rate ? failed / 2 : failed / 4, least);
  }
  if (failed - met <= options.resolution * met) return 0;
  const double middle = met + (failed - met) / 2;
  return middle > met && middle < failed ? middle : 0;
}

}  // namespace

Result<CapacityResult> search_capacity(const CapacityOptions& options,
                                       const std::function<Result<CapacityProbe>(double)>& probe) {
  RETURN_IF_ERROR(check_options(options));
  CapacityResult result;
  for (double rate = next_rate(options, result); rate > 0; rate = next_rate(options, result)) {
    if (std::isinf(rate) || result.probes.size() >= static_cast<std::size_t>(options.max_probes)) {
      result.exhausted = true;
      break;
    }
    ASSIGN_OR_RETURN(CapacityProbe done, probe(rate));
    done.rate = rate;
    done.met = meets(options.objective, done);
    (done.met ? result.rate : result.failing_rate) = rate;
    result.probes.push_back(done);
  }
  return result;
}

}  // namespace sluice
