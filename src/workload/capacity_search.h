// Capacity: the largest request rate at which the service-level objective holds, found by probing
// (Sarathi-Serve, section 5: P99 TBT within the SLO and a median scheduling delay of at most 2 s;
// Aqua, section 4: also a bound of TTFT).
// Pure: the caller runs the probes, against a server or in the simulator.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sluice {

struct CapacityObjective {
  Duration p99_tbt{0};
  Duration median_scheduling_delay = std::chrono::seconds(2);
  std::optional<Duration> ttft = std::nullopt;  // absent: any
  double ttft_percentile = 99;
};

struct CapacityProbe {
  double rate = 0;  // nominal, requests per second; set by the search
  Duration p99_tbt{0};
  Duration median_scheduling_delay{0};
  Duration ttft{0};  // of the objective's percentile
  bool met = false;
};

struct CapacityOptions {
  CapacityObjective objective;
  double start_rate = 1.0;
  double resolution = 0.025;  // of the rate: how close the bounds come to each other
  int max_probes = 20;
};

struct CapacityResult {
  double rate = 0;                    // the largest that met the objective; 0: none did
  double failing_rate = 0;            // the smallest that did not; 0: all met it
  std::vector<CapacityProbe> probes;  // in order
  bool exhausted = false;             // stopped by max_probes before the bounds were close
};

// From start_rate the rate doubles until the objective fails, or falls until it is met. Then the
// search halves the interval between the largest met rate and the smallest failed one until the two
// are within `resolution`. It never probes above a failed rate: if the response is not monotone
// (noise, a dip), the result is on the safe side. If start_rate / 1024 fails, the search ends with
// rate 0 and failing_rate is the last probe. No rate is probed twice.
//
// `probe` fills all but `rate` and `met`. Its error ends the search and is returned.
Result<CapacityResult> search_capacity(const CapacityOptions& options,
                                       const std::function<Result<CapacityProbe>(double)>& probe);

}  // namespace sluice
