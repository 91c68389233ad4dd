#include "sim/simulated_executor.h"

#include <algorithm>
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

SimulatedExecutor::SimulatedExecutor(StepCost& cost, double jitter, std::uint64_t seed,
                                     const TransferCost& transfers, const TierCost& tier)
    : cost_(cost),
      transfer_cost_(transfers),
      tier_cost_(tier),
      jitter_(jitter),
      random_(seed),
      pipeline_(cost.num_stages()),
      flights_(static_cast<std::size_t>(cost.num_stages())),
      stages_(static_cast<std::size_t>(cost.num_stages())) {}

int SimulatedExecutor::max_in_flight() const { return static_cast<int>(flights_.size()); }

Status SimulatedExecutor::submit(const BatchPlan& plan) {
  start_transfers(plan);
  if (!plan.has_rows()) return {};
  if (tier_cost_.shares_collectives) delay_blocks(cost_.collective_time(plan));
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

// Transfers start after the rows of all earlier plans, and one after another in their lane. The
// blocks that a plan moves in one direction are one copy.
void SimulatedExecutor::start_transfers(const BatchPlan& plan) {
  if (plan.transfers.empty()) return;
  Duration start = now_;
  const auto waiting = static_cast<std::size_t>(pipeline_.in_flight());
  if (waiting > 0)
    start = std::max(start, flights_[(oldest_ + waiting - 1) % flights_.size()].done);
  std::array<bool, kLanes> begun{};
  for (const PlanTransfer& transfer : plan.transfers) {
    const bool adapter = transfer.kind == TransferKind::kLoadAdapter;
    const std::size_t lane = adapter ? 0 : transfer.kind == TransferKind::kLoadBlock ? 1 : 2;
    const double latency = adapter ? transfer_cost_.latency : begun[lane] ? 0 : tier_cost_.latency;
    const double seconds =
        latency + (adapter ? transfer_cost_.adapter_bytes / transfer_cost_.bytes_per_second
                           : tier_cost_.block_bytes / tier_cost_.bytes_per_second);
    begun[lane] = true;
    lane_free_[lane] = std::max(start, lane_free_[lane]) + from_seconds(seconds);
    transfers_.push_back({transfer.id, lane, lane_free_[lane]});
  }
  sort_transfers();
}

// The copies of blocks wait while ranks sum their results over the same link.
void SimulatedExecutor::delay_blocks(Duration by) {
  for (Transfer& transfer : transfers_) {
    if (transfer.lane == 0 || transfer.done <= now_) continue;
    transfer.done += by;
    lane_free_[transfer.lane] = std::max(lane_free_[transfer.lane], transfer.done);
  }
  sort_transfers();
}

void SimulatedExecutor::sort_transfers() {
  std::stable_sort(transfers_.begin(), transfers_.end(),
                   [](const Transfer& a, const Transfer& b) { return a.done < b.done; });
}

Status SimulatedExecutor::poll(std::vector<TransferResult>& completed) {
  std::size_t over = 0;
  for (; over < transfers_.size() && transfers_[over].done <= now_; ++over) {
    completed.push_back({transfers_[over].id, false});
  }
  transfers_.erase(transfers_.begin(), transfers_.begin() + static_cast<std::ptrdiff_t>(over));
  return {};
}

std::optional<Duration> SimulatedExecutor::transfer_done_at() const {
  if (transfers_.empty()) return std::nullopt;
  return transfers_.front().done;
}

Status SimulatedExecutor::collect(StepResult& out) {
  CHECK(pipeline_.in_flight() > 0);
  answer_step(*flights_[oldest_].plan, out);
  oldest_ = (oldest_ + 1) % flights_.size();
  pipeline_.finish();
  return {};
}

}  // namespace sluice
