#include "sim/simulated_executor.h"

#include <cmath>

#include "base/check.h"

namespace sluice {
void answer_step(const BatchPlan& plan, StepResult& out) {
  out.clear();
  out.tokens.assign(plan.logit_positions.size(), kSimulatedToken);
  for (const PlanRow& row : plan.rows) {
    RowResult& result = out.rows.emplace_back();
    result.first_token = row.first_logit;
    result.num_tokens = row.num_logits;
  }
}

SimulatedExecutor::SimulatedExecutor(StepCost& cost, double jitter, std::uint64_t seed)
    : cost_(cost),
      jitter_(jitter),
      random_(seed),
      pipeline_(cost.num_stages()),
      flights_(static_cast<std::size_t>(cost.num_stages())),
      stages_(static_cast<std::size_t>(cost.num_stages())) {}

int SimulatedExecutor::max_in_flight() const { return static_cast<int>(flights_.size()); }

Status SimulatedExecutor::submit(const BatchPlan& plan) {
  CHECK(plan.has_rows());
  cost_.stage_times(plan, stages_);
  if (jitter_ > 0) {
    const double factor = 1 + jitter_ * (2 * random_.uniform() - 1);
    for (Duration& stage : stages_) {
      stage = Duration(std::llround(static_cast<double>(stage.count()) * factor));
    }
  }
  const auto waiting = static_cast<std::size_t>(pipeline_.in_flight());
  const Duration done = pipeline_.start(plan, now_, stages_, cost_.send_time(plan));
  flights_[(oldest_ + waiting) % flights_.size()] = {&plan, done};
  return {};
}

Status SimulatedExecutor::collect(StepResult& out) {
  CHECK(pipeline_.in_flight() > 0);
  answer_step(*flights_[oldest_].plan, out);
  oldest_ = (oldest_ + 1) % flights_.size();
  pipeline_.finish();
  return {};
}

}  // namespace sluice
