// Arrival processes: the times of requests in an open loop, which does not wait for answers.
// The same seed gives the same times on every machine. Any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sluice {

struct ArrivalOptions {
  // Requests per second; infinite: all at once.
  double rate = std::numeric_limits<double>::infinity();
  // Shape of the gamma distribution of the gaps, as vllm bench serve has it: 1 is Poisson, below 1
  // burstier (CoV = 1 / sqrt(burstiness)), above 1 more even.
  double burstiness = 1.0;
  std::uint64_t seed = 0;
};

// `count` times in ascending order from 0 on. The gaps are neither clipped nor rescaled to the
// nominal rate; summaries report the realised rate instead (serving_summary.h). kInvalidArgument
// names the option that is not a positive number, or out of its range.
Result<std::vector<Duration>> make_arrivals(const ArrivalOptions& options, std::int64_t count);

}  // namespace sluice
