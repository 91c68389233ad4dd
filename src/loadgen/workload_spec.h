// WorkloadSpec: the options of a workload. make_workload() makes the workload: from a trace file
// with its own times, or from lengths and an arrival process. Reads files; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "workload/trace_file.h"
#include "workload/workload.h"

namespace sluice {

enum class RampUp : std::uint8_t { kNone, kLinear, kExponential };

struct WorkloadSpec {
  std::string trace;  // a file; "": lengths and arrivals
  // For a trace; length_scale also for `lengths`. make_workload() sets max_requests and max_total
  // from the members below.
  TraceOptions trace_options;
  std::string lengths = "fixed:1024,128";  // see workload/lengths.h
  std::int64_t count = 0;                  // 0: the whole trace; else 1000 requests
  // Arrivals per second; infinite: all at once. A trace has its own.
  double rate = std::numeric_limits<double>::infinity();
  double burstiness = 1.0;
  RampUp ramp_up = RampUp::kNone;
  double ramp_start = 0;  // requests per second, of the first and the last request
  double ramp_end = 0;
  std::int32_t max_total = 0;  // the model's context; 0: unknown
  std::uint64_t seed = 0;
};

inline constexpr std::int64_t kDefaultRequests = 1000;

struct MadeWorkload {
  Workload workload;
  std::int64_t shortened = 0;  // of synthetic lengths, to max_total
};

// Logs a warning when requests are shortened. Errors name the option, or file, line and column.
Result<MadeWorkload> make_workload(const WorkloadSpec& spec);

// Shortens requests beyond `context` tokens, in proportion, and logs a warning.
void shorten_to_context(Workload& workload, std::int32_t context);

// Converts arrival times of the unit rate (one a second on average) to a rate that goes from
// `start` to `end`, by equal steps or by equal factors from request to request, as in vllm bench
// serve.
void ramp_arrivals(RampUp kind, double start, double end, std::vector<Duration>& arrivals);

}  // namespace sluice
