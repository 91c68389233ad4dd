// Workload: the requests of one run, in order of arrival, as lengths and times only. Made from a
// trace file (trace_file.h), or from an arrival process (arrivals.h) and lengths (lengths.h); run
// by the load generator against a server and by the simulator on its virtual clock. Plain data; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace sluice {

struct WorkloadRequest {
  Duration arrival{0};             // since the run's start
  std::int32_t prompt_tokens = 0;  // at least 1
  std::int32_t output_tokens = 0;  // at least 1
  // Names of the prompt's leading pieces of kPrefixPieceTokens tokens; requests whose first names
  // are equal share that much of their prompts. Empty: shares nothing.
  std::vector<std::uint64_t> prefix_pieces;
  std::int32_t adapter = -1;  // index; -1: the base model
};

inline constexpr std::int32_t kPrefixPieceTokens = 512;  // as in Mooncake's traces
// The limit of a prompt and of an output, so that their sum fits into 32 bits.
inline constexpr std::int32_t kMaxRequestTokens = 1'000'000'000;
// Thirty years: arrivals beyond it are refused, far from the end of Duration.
inline constexpr double kLongestWorkloadSeconds = 1e9;
// More requests, which would take 4 GB, are refused.
inline constexpr std::int64_t kMaxWorkloadRequests = 100'000'000;

struct Workload {
  std::string source;  // for people: "sharegpt lengths, Poisson 2.0/s", "FILE"
  std::vector<WorkloadRequest> requests;
};

}  // namespace sluice
