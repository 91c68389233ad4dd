#include "workload/synthetic_workload.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "workload/lengths.h"

namespace sluice {

namespace {

std::string describe(const ArrivalOptions& arrivals) {
  if (std::isinf(arrivals.rate)) return "all at once";
  if (arrivals.burstiness == 1) return fmt::format("Poisson {}/s", arrivals.rate);
  return fmt::format("gamma {}/s, CoV {:.3g}", arrivals.rate, 1 / std::sqrt(arrivals.burstiness));
}

}  // namespace

Result<Workload> make_workload(const SyntheticWorkload& synthetic) {
  ASSIGN_OR_RETURN(const std::vector<Duration> arrivals,
                   make_arrivals(synthetic.arrivals, synthetic.requests));
  ASSIGN_OR_RETURN(const std::vector<RequestLengths> lengths,
                   make_lengths(synthetic.lengths, synthetic.requests, synthetic.max_total,
                                synthetic.arrivals.seed));
  Workload workload;
  workload.source = fmt::format("{} lengths, {}", synthetic.lengths, describe(synthetic.arrivals));
  workload.requests.resize(arrivals.size());
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    WorkloadRequest& request = workload.requests[i];
    request.arrival = arrivals[i];
    request.prompt_tokens = lengths[i].prompt_tokens;
    request.output_tokens = lengths[i].output_tokens;
  }
  return workload;
}

}  // namespace sluice
