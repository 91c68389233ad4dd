// Arrival processes: the times of requests in an open loop, which does not wait for answers.
// The same seed gives the same times on every machine. Any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
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

// A rate for a time, and then the next.
struct RateStep {
  double rate = 0;  // requests per second
  double seconds = 0;
};

// "2x60,10x30,2x60": 2 requests per second for 60 seconds, then 10 for 30, then 2 for 60.
// kInvalidArgument quotes the part that is wrong.
Result<std::vector<RateStep>> parse_rate_steps(std::string_view text);

// The arrivals of all steps: those of make_arrivals() at a rate of 1, with time stretched so that
// each step has its rate. Options' rate is not used.
Result<std::vector<Duration>> make_step_arrivals(const std::vector<RateStep>& steps,
                                                 const ArrivalOptions& options);

}  // namespace sluice
