// SimulatedLoad: the requests of a simulation: a trace with its own arrival times, or lengths that
// can arrive at any rate. Errors name the option of `sluice simulate`, or file, line and column.
// Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "workload/lengths.h"
#include "workload/trace_file.h"
#include "workload/workload.h"

namespace sluice {

struct SimulatedLoadOptions {
  std::string trace;                    // a file; empty: lengths
  TooLong too_long = TooLong::kRefuse;  // requests of a trace beyond the context
  double rate_scale = 1;                // of a trace
  double length_scale = 1;              // of a trace or of `lengths`
  std::string lengths = "sharegpt";     // see workload/lengths.h
  std::string rate_steps;               // see workload/arrivals.h; empty: another rate
  // Each prompt begins with one of `prefixes` common prefixes, besides its own length. Their tokens
  // are a multiple of kPrefixPieceTokens. 0: nothing is shared.
  std::int32_t prefix_tokens = 0;
  std::int32_t prefixes = 1;
  std::optional<std::int64_t> num_requests;  // absent: the whole trace, or 2,048
  double burstiness = 1;
  std::int32_t context = 0;  // of the model
  std::uint64_t seed = 0;
};

class SimulatedLoad {
 public:
  static Result<SimulatedLoad> make(const SimulatedLoadOptions& options);

  bool has_times() const { return trace_.has_value(); }
  // REQUIRES: !has_times().
  Result<Workload> at_rate(double rate) const;
  // REQUIRES: has_times().
  const Workload& trace() const { return *trace_; }

 private:
  void add_prefixes(Workload& workload) const;

  std::optional<Workload> trace_;
  std::vector<RequestLengths> lengths_;
  std::string spec_;
  double burstiness_ = 1;
  std::int32_t prefix_tokens_ = 0;
  std::int32_t prefixes_ = 1;
  std::uint64_t seed_ = 0;
};

}  // namespace sluice
