// A workload without a trace file: an arrival process and a length distribution. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "workload/arrivals.h"
#include "workload/workload.h"

namespace sluice {

struct SyntheticWorkload {
  std::string lengths = "sharegpt";  // as make_lengths takes them
  ArrivalOptions arrivals;           // its seed is that of the lengths, too
  std::int64_t requests = 1000;
  std::int32_t max_total = 0;  // context; what is longer is shortened. 0: no limit
};

// The requests, without shared prefixes. Errors as of make_arrivals and make_lengths.
Result<Workload> make_workload(const SyntheticWorkload& synthetic);

}  // namespace sluice
