#include "sim/simulated_executor.h"

#include "base/check.h"

namespace sluice {
namespace {

// Any token that ends no sequence: lengths are the workload's.
constexpr TokenId kAnyToken = 1;

}  // namespace

SimulatedExecutor::SimulatedExecutor(StepCost& cost)
    : cost_(cost),
      pipeline_(cost.num_stages()),
      flights_(static_cast<std::size_t>(cost.num_stages())),
      stages_(static_cast<std::size_t>(cost.num_stages())) {}

int SimulatedExecutor::max_in_flight() const { return static_cast<int>(flights_.size()); }

Status SimulatedExecutor::submit(const BatchPlan& plan) {
  CHECK(!plan.empty());
  cost_.stage_times(plan, stages_);
  const auto waiting = static_cast<std::size_t>(pipeline_.in_flight());
  const Duration done = pipeline_.start(plan, now_, stages_, cost_.send_time(plan));
  flights_[(oldest_ + waiting) % flights_.size()] = {&plan, done};
  return {};
}

Status SimulatedExecutor::collect(StepResult& out) {
  CHECK(pipeline_.in_flight() > 0);
  const BatchPlan& plan = *flights_[oldest_].plan;
  out.clear();
  out.tokens.assign(plan.logit_positions.size(), kAnyToken);
  for (const PlanRow& row : plan.rows) {
    RowResult& result = out.rows.emplace_back();
    result.first_token = row.first_logit;
    result.num_tokens = row.num_logits;
  }
  oldest_ = (oldest_ + 1) % flights_.size();
  pipeline_.finish();
  return {};
}

}  // namespace sluice
