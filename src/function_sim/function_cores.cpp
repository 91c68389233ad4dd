// The part of FunctionSimulator on a machine of cores: calls go to the engines of their functions
// by the gateway's rules (src/gateway/function_dispatch.cpp), and steps end.
#include <algorithm>

#include "function_sim/function_simulator.h"
#include "turns/turn_times.h"

namespace sluice {
namespace {

// Functions of a tenant that prefill at a time, as in the gateway: one more than have a turn.
constexpr std::int32_t kPrefillsAtOnce = 2;

std::size_t slot_at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// Tenants have devices of their own, as far as dispatching goes (FunctionLoops::open_turns()).
std::vector<std::int32_t> FunctionSimulator::turns_of(std::span<const WaitingBatch> batches,
                                                      std::span<const std::int32_t> tenants) const {
  std::vector<std::int32_t> waiting(tenants.size());
  for (const WaitingBatch& batch : batches) ++waiting[slot_at(batch.device)];
  std::vector<std::int32_t> turns;
  for (const std::int32_t tenant : tenants) {
    const auto prefilling = std::ranges::count_if(places_[0].functions, [&](std::int32_t f) {
      const Function& function = functions_[slot_at(f)];
      return function.spec.tenant == tenant && function.prefilling > 0;
    });
    turns.push_back(std::max(0, static_cast<std::int32_t>(prefilling) - kPrefillsAtOnce + 1));
  }
  for (const WaitingBatch& batch : batches) {
    const bool joins = functions_[slot_at(batch.function)].prefilling > 0;
    if (waiting[slot_at(batch.device)] == 1 && joins) turns[slot_at(batch.device)] = 0;
  }
  return turns;
}

void FunctionSimulator::dispatch_cores() {
  for (;;) {
    std::vector<WaitingBatch> batches;
    std::vector<std::int32_t> tenants;
    for (const std::int32_t number : places_[0].functions) view_function(number, batches);
    if (batches.empty()) return;
    for (WaitingBatch& batch : batches) {
      const std::int32_t tenant = functions_[slot_at(batch.function)].spec.tenant;
      const auto found = std::ranges::find(tenants, tenant);
      batch.device = static_cast<std::int32_t>(found - tenants.begin());
      if (found == tenants.end()) tenants.push_back(tenant);
    }
    const std::vector<std::int32_t> turns = turns_of(batches, tenants);
    const BatchingPlan plan = plan_batches({now_, system_.batching, batches, turns, system_.fixed});
    for (const Refusal& refusal : plan.refusals) {
      refuse_front(batches[slot_at(refusal.batch)].function);
    }
    for (const BatchDispatch& one : plan.dispatches) {
      dispatch_front(batches[slot_at(one.batch)].function, one.requests);
    }
    plan_step_end();
    look(0, plan.wake_at);
    if (plan.refusals.empty() && plan.dispatches.empty()) return;
  }
}

void FunctionSimulator::dispatch_front(std::int32_t number, std::int32_t requests) {
  Function& function = functions_[slot_at(number)];
  for (std::int32_t i = 0; i < requests && function.running < spec_.max_sequences; ++i) {
    const std::int32_t number_of_call = function.waiting.front().call;
    const FunctionCall& call = calls_[slot_at(number_of_call)];
    take_waiting(function);
    ++function.prefilling;
    function.prefill_tokens += call.prompt_tokens;
    const bool has_goal = function.spec.ttft_slo.count() > 0;
    const Duration goal =
        has_goal ? std::min(function.spec.ttft_slo, kFirstTokenDue) : kFirstTokenDue;
    engines_->submit(
        now_, number,
        {number_of_call, call.prompt_tokens, call.output_tokens, TimePoint{call.arrival} + goal});
  }
}

void FunctionSimulator::disturb_step() {
  engines_->disturb(from_seconds(spec_.call_cpu_s));
  plan_step_end();
}

void FunctionSimulator::plan_step_end() {
  const std::optional<TimePoint> next = engines_->next_end();
  if (next == step_end_) return;
  step_end_ = next;
  if (next) push(*next, Kind::kStepEnd, 0);
}

void FunctionSimulator::end_step() {
  if (step_end_ != now_) return;  // a call has made the step longer
  std::vector<CoreEngines::Event> events;
  engines_->end_step(now_, events);
  plan_step_end();
  if (events.empty()) return;
  for (const CoreEngines::Event& event : events) {
    if (event.first) {
      Function& function = functions_[slot_at(event.function)];
      --function.prefilling;
      function.prefill_tokens -= calls_[slot_at(event.call)].prompt_tokens;
      take_first_token(event.call);
    }
    if (event.last) take_last_token(event.call);
  }
  dispatch_cores();
}

}  // namespace sluice
