#include "workload/workload.h"

namespace sluice {

double realised_rate(const Workload& workload) {
  if (workload.requests.size() < 2) return 0;
  const Duration span = workload.requests.back().arrival - workload.requests.front().arrival;
  const double seconds = to_seconds(span);
  // All at once has no rate.
  return seconds > 0 ? static_cast<double>(workload.requests.size() - 1) / seconds : 0;
}

}  // namespace sluice
