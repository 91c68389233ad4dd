#include "sim/streamed_cost.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {

StreamedCost::StreamedCost(std::unique_ptr<StepCost> inner, const TierCost& link,
                           double token_bytes, std::int32_t layers)
    : inner_(std::move(inner)),
      latency_(link.latency * layers),
      token_seconds_(token_bytes / link.bytes_per_second) {
  CHECK(inner_->num_stages() == 1);
}

void StreamedCost::stage_times(const BatchPlan& plan, std::span<Duration> stages) {
  inner_->stage_times(plan, stages);
  std::int64_t read = 0;
  std::int64_t written = 0;
  for (const PlanRow& row : plan.rows) {
    read += row.context_len;
    written += row.query_len;
  }
  if (read + written == 0) return;
  // The link carries both directions at once.
  const double copies = latency_ + token_seconds_ * static_cast<double>(std::max(read, written));
  stages[0] = std::max(stages[0], from_seconds(copies));
}

}  // namespace sluice
