#include "serverless/batching.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

// A batch as far as a plan has decided about it. Requests before `first` are refused: whether a
// request misses its SLO depends on its age and its tokens, so others may be refused too, but they
// wait behind an older one that can still meet it, and are looked at again then.
struct Candidate {
  std::int32_t batch = 0;
  std::int32_t first = 0;
  std::int32_t requests = 0;
  double margin_s = 0;
};

// The time until the first token of the last of `tokens` more.
double time_of(const WaitingBatch& batch, std::int64_t tokens) {
  return batch.time.seconds(batch.ahead + tokens);
}

// The time until the first token if the request's function had the device alone from now on.
double least_ttft_s(const WaitingBatch& batch, const WaitingRequest& request, TimePoint now) {
  return to_seconds(now - request.arrival) + to_seconds(batch.ready_in) +
         time_of(batch, request.tokens);
}

// As many requests, from the first one on, as are computed before the first one misses its SLO; one
// at least.
std::int32_t requests_within_slo(const WaitingBatch& batch, std::int32_t first, TimePoint now) {
  const double left_s = to_seconds(batch.slo) -
                        to_seconds(now - batch.requests[static_cast<std::size_t>(first)].arrival);
  std::int64_t tokens = 0;
  std::int32_t count = 0;
  for (std::size_t i = static_cast<std::size_t>(first); i < batch.requests.size(); ++i) {
    tokens += batch.requests[i].tokens;
    if (count > 0 && time_of(batch, tokens) > left_s) break;
    ++count;
  }
  return count;
}

// The requests of a full batch.
std::int32_t full_batch(const BatchingView& view, const WaitingBatch& batch) {
  return view.mode == Batching::kFixed ? view.fixed.size : batch.line.max_requests(batch.slo);
}

double prefill_s(const BatchingView& view, const WaitingBatch& batch, const Candidate& candidate) {
  if (view.mode == Batching::kFillOrExpire) return batch.line.seconds(candidate.requests);
  std::int64_t tokens = 0;
  const auto end = static_cast<std::size_t>(candidate.first + candidate.requests);
  for (auto i = static_cast<std::size_t>(candidate.first); i < end; ++i) {
    tokens += batch.requests[i].tokens;
  }
  return time_of(batch, tokens);
}

// Refuses what cannot meet its SLO, and returns the rest.
Candidate admit(const BatchingView& view, std::int32_t index, BatchingPlan& plan) {
  const WaitingBatch& batch = view.batches[static_cast<std::size_t>(index)];
  Candidate candidate{index, 0, 0, 0};
  for (const WaitingRequest& request : batch.requests) {
    CHECK(request.arrival <= view.now);
    if (least_ttft_s(batch, request, view.now) <= to_seconds(batch.slo)) break;
    plan.refusals.push_back({index, candidate.first++});
  }
  const auto left = static_cast<std::int32_t>(batch.requests.size()) - candidate.first;
  if (left == 0) return candidate;
  candidate.requests = view.mode == Batching::kWorkConserving
                           ? requests_within_slo(batch, candidate.first, view.now)
                           : std::min(left, full_batch(view, batch));
  return candidate;
}

void wake_no_later_than(TimePoint time, BatchingPlan& plan) {
  plan.wake_at = plan.wake_at ? std::min(*plan.wake_at, time) : time;
}

// Whether the batch is full or its delay, by equation 3 or fixed, has expired; else when it will
// be.
bool is_due(const BatchingView& view, const Candidate& candidate, BatchingPlan& plan) {
  const WaitingBatch& batch = view.batches[static_cast<std::size_t>(candidate.batch)];
  if (candidate.requests >= full_batch(view, batch)) return true;
  const double delay_s = view.mode == Batching::kFixed
                             ? to_seconds(view.fixed.delay)
                             : to_seconds(batch.slo) - batch.line.seconds(candidate.requests);
  const TimePoint oldest = batch.requests[static_cast<std::size_t>(candidate.first)].arrival;
  const TimePoint due = oldest + from_seconds(std::max(delay_s, 0.0));
  if (due <= view.now) return true;
  wake_no_later_than(due, plan);
  return false;
}

}  // namespace

std::int32_t PrefillLine::max_requests(Duration slo) const {
  constexpr double kMost = 1e6;
  const double spare = to_seconds(slo) - first_s;
  if (!(spare > 0)) return 1;
  if (!(next_s > 0)) return static_cast<std::int32_t>(kMost);
  // A part in 10^12 is added, so that 0.9 / 0.3 is 3.
  return 1 + static_cast<std::int32_t>(std::floor(std::min(spare / next_s, kMost) * (1 + 1e-12)));
}

PrefillLine line_of(const PrefillTime& time, double tokens) {
  return {time.step_s + time.token_s * tokens, time.token_s * tokens};
}

BatchingPlan plan_batches(const BatchingView& view) {
  BatchingPlan plan;
  std::vector<Candidate> candidates;
  std::vector<std::int32_t> batches_on(view.turns.begin(), view.turns.end());  // M
  for (std::int32_t i = 0; i < std::ssize(view.batches); ++i) {
    const Candidate candidate = admit(view, i, plan);
    if (candidate.requests == 0) continue;
    candidates.push_back(candidate);
    const auto device = static_cast<std::size_t>(view.batches[static_cast<std::size_t>(i)].device);
    CHECK(device < batches_on.size());
    ++batches_on[device];
  }
  for (Candidate& candidate : candidates) {
    const WaitingBatch& batch = view.batches[static_cast<std::size_t>(candidate.batch)];
    const double m = batches_on[static_cast<std::size_t>(batch.device)];
    const auto& oldest = batch.requests[static_cast<std::size_t>(candidate.first)];
    candidate.margin_s = to_seconds(batch.slo) - (to_seconds(view.now - oldest.arrival) +
                                                  m * prefill_s(view, batch, candidate));
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::margin_s);
  std::vector<std::int32_t> turns(view.turns.begin(), view.turns.end());
  for (const Candidate& candidate : candidates) {
    const WaitingBatch& batch = view.batches[static_cast<std::size_t>(candidate.batch)];
    if (batch.ready_in.count() > 0) continue;
    std::int32_t& busy = turns[static_cast<std::size_t>(batch.device)];
    const bool goes =
        view.mode == Batching::kWorkConserving ? busy == 0 : is_due(view, candidate, plan);
    if (!goes) continue;
    ++busy;
    plan.dispatches.push_back(
        {candidate.batch, candidate.first, candidate.requests, candidate.margin_s});
  }
  return plan;
}

}  // namespace sluice
