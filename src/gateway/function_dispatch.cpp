// The part of FunctionLoops that gives waiting requests to ready instances, by plan_batches().
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "gateway/function_loops.h"

namespace sluice {
namespace {

// Older requests decide first, and the plan follows each event.
constexpr std::size_t kMostInView = 256;
// No SLO.
constexpr Duration kLongSlo = std::chrono::hours(24);
// The part of the SLO that learned times of a prompt count at most. So a call that comes while
// nothing waits or lies ahead is always tried; else times that a bad moment has left could refuse
// all, and nothing would be measured again.
constexpr double kMostLearned = 0.9;
// The time by which a timer of the event loop may be late.
constexpr double kTimerSlackSeconds = 0.01;

PrefillTime expected_time(const PrefillMeter& meter, Duration slo, std::int64_t tokens) {
  PrefillTime time = meter.usual();
  const double most = kMostLearned * to_seconds(slo);
  if (time.seconds(tokens) > most) {
    // Tokens keep their time as far as they can: those ahead are to be seen.
    time.token_s = std::min(time.token_s, most / static_cast<double>(tokens));
    time.step_s = most - time.token_s * static_cast<double>(tokens);
  }
  return time;
}

// Times that nothing is known about are as long as the SLO, so that each call is due at once.
PrefillLine expected_line(const PrefillMeter& meter, Duration slo) {
  PrefillLine line = line_of(meter.usual(), meter.mean_tokens());
  if (!(line.first_s > 0)) return {to_seconds(slo), 1};
  line.first_s += kTimerSlackSeconds;
  return line;
}

}  // namespace

void FunctionLoops::dispatch() {
  if (state_ != EngineState::kReady) return;
  do {
    start_needed();
  } while (dispatch_ready());
}

void FunctionLoops::note_ready(Instance& instance) {
  if (instance.ready_at || instance.loop->state() != EngineState::kReady) return;
  instance.ready_at = clock_.now();
  // A worker that was ready says nothing about the time of a start.
  if (instance.was_warm) return;
  ++counts_.ready;
  counts_.start_time += *instance.ready_at - instance.started;
}

// Reads the batch that was taken last.
void FunctionLoops::note_tokens() {
  if (prefills_.all() == 0) return;
  for (const OutputEvent& event : scratch_.events) {
    if (event.num_tokens > 0) {
      prefills_.first_token(event.request, event.time);
    } else if (event.finish_reason != FinishReason::kNone) {
      prefills_.ended(event.request);
    }
  }
  for (const RefusedRequest& refused : scratch_.refused) prefills_.ended(refused.request);
}

void FunctionLoops::add_batch(std::int32_t number, TimePoint now, DispatchView& view) {
  Function& function = function_at(number);
  if (function.waiting.empty()) return;
  const std::int32_t adapter = function.waiting.front().adapter;
  Instance* const instance = instance_for(function, adapter);
  if (instance == nullptr || instance->loop->is_lost()) return;
  note_ready(*instance);
  if (!instance->ready_at) return;
  const PrefillMeter& meter = prefills_.meter(number);
  WaitingBatch batch;
  batch.function = number;
  batch.slo = function.spec.ttft_slo.count() > 0 ? function.spec.ttft_slo : kLongSlo;
  // A batch that is held until its margin is used up leaves none for a refusal.
  if (batching_ == Batching::kWorkConserving) {
    batch.time = expected_time(
        meter, batch.slo, std::max<std::int64_t>(1, std::ssize(function.waiting.front().prompt)));
    batch.ahead = prefills_.tokens_of(number);
  }
  batch.line = expected_line(meter, batch.slo);
  if (options_.seats > 0 && instance->loop->unfinished_requests() >= options_.seats) {
    batch.ready_in = Duration(1);
  }
  // A fixed batch is computed to its end before the function's next one.
  if (batching_ == Batching::kFixed && instance->loop->unfinished_requests() > 0) {
    batch.ready_in = Duration(1);
  }
  function.view.clear();
  for (const Request& request : function.waiting) {
    if (request.adapter != adapter || function.view.size() == kMostInView) break;
    const TimePoint since = std::min(std::max(request.arrival, *instance->ready_at), now);
    function.view.push_back({since, std::max<std::int64_t>(1, std::ssize(request.prompt))});
  }
  batch.requests = function.view;
  const std::int32_t tenant = prefills_.tenant(number);
  const auto device = std::ranges::find(view.tenants, tenant);
  batch.device = static_cast<std::int32_t>(device - view.tenants.begin());
  if (device == view.tenants.end()) view.tenants.push_back(tenant);
  view.batches.push_back(batch);
}

// How many functions of a tenant count as having its turn: those beyond the ones that may prefill
// beside a new one. A function that prefills and has no other one beside it joins its own batch.
void FunctionLoops::open_turns(DispatchView& view) const {
  std::vector<std::int32_t> waiting(view.tenants.size());
  for (const WaitingBatch& batch : view.batches) ++waiting[static_cast<std::size_t>(batch.device)];
  for (const std::int32_t tenant : view.tenants) {
    view.turns.push_back(
        std::max(0, prefills_.functions_of(tenant) - options_.prefills_at_once + 1));
  }
  for (const WaitingBatch& batch : view.batches) {
    const auto device = static_cast<std::size_t>(batch.device);
    if (waiting[device] == 1 && prefills_.of_function(batch.function) > 0) view.turns[device] = 0;
  }
}

FunctionLoops::DispatchView FunctionLoops::view_batches(TimePoint now) {
  DispatchView view;
  for (const std::int32_t number : active_) add_batch(number, now, view);
  open_turns(view);
  return view;
}

bool FunctionLoops::dispatch_ready() {
  const TimePoint now = clock_.now();
  const DispatchView view = view_batches(now);
  if (view.batches.empty()) return false;
  const BatchingPlan plan = plan_batches({now, batching_, view.batches, view.turns, fixed_batch_});
  // Refused requests stand before all that are dispatched.
  for (const Refusal& refusal : plan.refusals) {
    refuse_front(view.batches[static_cast<std::size_t>(refusal.batch)].function);
  }
  for (const BatchDispatch& dispatch : plan.dispatches) {
    dispatch_front(view.batches[static_cast<std::size_t>(dispatch.batch)].function,
                   dispatch.requests);
  }
  const bool is_earlier =
      plan.wake_at && (!called_at_ || *called_at_ <= now || *plan.wake_at < *called_at_);
  if (is_earlier && call_after_) {
    called_at_ = plan.wake_at;
    call_after_(*plan.wake_at - now);
  }
  return !plan.refusals.empty() || !plan.dispatches.empty();
}

void FunctionLoops::refuse_front(std::int32_t number) {
  Function& function = function_at(number);
  refuse(
      function.waiting.front().id, GatewayRefusal::kSlo,
      resource_exhausted(fmt::format(
          "'{}' is busy: its first token would come later than its goal of {} ms "
          "(ttft_slo_ms); try again later",
          function.spec.name,
          std::chrono::duration_cast<std::chrono::milliseconds>(function.spec.ttft_slo).count())));
  function.waiting.pop_front();
}

void FunctionLoops::dispatch_front(std::int32_t number, std::int32_t requests) {
  Function& function = function_at(number);
  Instance* const instance = instance_for(function, function.waiting.front().adapter);
  CHECK(instance != nullptr);
  instance->last_use = clock_.now();
  for (std::int32_t i = 0; i < requests; ++i) {
    if (i > 0 && options_.seats > 0 && instance->loop->unfinished_requests() >= options_.seats) {
      return;
    }
    Request request = std::move(function.waiting.front());
    function.waiting.pop_front();
    const RequestId id = request.id;
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    prefills_.dispatched(request, clock_.now());
    if (Status status = instance->loop->submit(std::move(request)); !status) {
      prefills_.ended(id);
      pending_.refused.push_back({id, std::move(status).error()});
      wake_();
      continue;
    }
    usage_.count_request(number, prompt_tokens);
  }
}

GatewayCounts FunctionLoops::counts() const {
  GatewayCounts counts = counts_;
  counts.functions = static_cast<std::int32_t>(functions_.size());
  counts.instances = num_instances_;
  counts.backbones = static_cast<std::int32_t>(backbones_.size());
  for (const Backbone& backbone : backbones_) {
    counts.backbones_warm += backbone.workers ? 1 : 0;
    if (backbone.load != Load::kLoaded) continue;
    ++counts.backbones_loaded;
    counts.backbone_bytes += backbone.bytes;
  }
  for (const std::int32_t number : active_) {
    const Function& function = functions_[static_cast<std::size_t>(number)];
    counts.waiting += static_cast<std::int32_t>(function.waiting.size());
    for (const Instance& instance : function.instances)
      counts.starting += instance.ready_at ? 0 : 1;
  }
  counts.prefills = prefills_.all();
  return counts;
}

}  // namespace sluice
