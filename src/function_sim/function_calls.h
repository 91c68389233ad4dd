// The calls of a simulation of functions: made from an arrival process for each function, or from a
// trace whose requests are dealt out to functions at random. The same seed gives the same calls.
// Any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "workload/workload.h"

namespace sluice {

struct FunctionCall {
  Duration arrival{0};
  std::int32_t function = 0;
  std::int32_t prompt_tokens = 1;
  std::int32_t output_tokens = 1;
};

struct CallOptions {
  std::int32_t functions = 1;
  double cov = 1;      // of the gaps: standard deviation over mean; gamma distributed
  double rate = 0.01;  // calls per second of each function
  double seconds = 3600;
  std::int32_t prompt_tokens = 100;  // means; lengths are even from half to one and a half of it
  std::int32_t output_tokens = 100;
  std::uint64_t seed = 0;
};

// In order of arrival. kInvalidArgument names the option that is out of its range.
Result<std::vector<FunctionCall>> make_calls(const CallOptions& options);
std::vector<FunctionCall> deal_calls(const Workload& trace, std::int32_t functions,
                                     std::uint64_t seed);

// The mean CoV of the paper's classes: "predictable" (at most 1), "normal" (to 4), "bursty".
Result<double> cov_of_class(std::string_view name);

}  // namespace sluice
