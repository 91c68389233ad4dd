#include "gateway/function_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "function/append_batch.h"
#include "function/gauge_sums.h"

namespace sluice {
FunctionLoops::FunctionLoops(const Options& options, InstanceHost& host, UsageSink& usage,
                             const Clock& clock, std::function<void()> wake)
    : options_(options),
      host_(host),
      usage_(usage),
      clock_(clock),
      wake_(std::move(wake)),
      planner_(clock.now()) {}

FunctionLoops::~FunctionLoops() { stop(); }

std::int32_t FunctionLoops::add_function(const GatewayFunction& function) {
  CHECK(function.backbone >= 0 && function.backbone < std::ssize(backbones_));
  functions_.emplace_back().spec = function;
  planner_.add_function(function.backbone, function.idle);
  prefills_.add_function(function.tenant, function.backbone);
  return static_cast<std::int32_t>(functions_.size()) - 1;
}

void FunctionLoops::change_function(std::int32_t function, const GatewayFunction& changed) {
  Function& one = function_at(function);
  CHECK(one.spec.tenant == changed.tenant && one.spec.backbone == changed.backbone);
  const bool idles_longer_or_less = one.spec.idle != changed.idle;
  one.spec = changed;
  planner_.set_idle(function, changed.idle);
  if (idles_longer_or_less && one.scaler) make_scaler(one);
}

void FunctionLoops::set_ready() {
  CHECK(state_ == EngineState::kLoading);
  state_ = EngineState::kReady;
  wake_();
}

void FunctionLoops::stop() {
  if (state_ == EngineState::kStopped) return;
  state_ = EngineState::kStopped;
  for (const std::int32_t number : active_) {
    Function& function = function_at(number);
    while (!function.instances.empty()) end_instance(number, function.instances.size() - 1);
    for (Request& request : function.waiting) {
      refuse(request.id, GatewayRefusal::kLoad, unavailable("the gateway stops"));
    }
    function.waiting.clear();
    report_activity(number);
  }
  active_.clear();
  wake_();
}

FunctionLoops::Function& FunctionLoops::function_at(std::int32_t function) {
  CHECK(function >= 0 && function < std::ssize(functions_));
  return functions_[static_cast<std::size_t>(function)];
}

// Not before it has reported the ends of its requests.
bool FunctionLoops::has_failed(const Instance& instance) {
  return instance.loop->state() == EngineState::kFailed &&
         instance.loop->unfinished_requests() == 0;
}

std::int32_t FunctionLoops::unfinished_of(const Function& function) {
  auto sum = static_cast<std::int32_t>(function.waiting.size());
  for (const Instance& instance : function.instances) sum += instance.loop->unfinished_requests();
  return sum;
}

std::int32_t FunctionLoops::unfinished_requests() const {
  std::int32_t sum = 0;
  for (const std::int32_t function : active_) {
    sum += unfinished_of(functions_[static_cast<std::size_t>(function)]);
  }
  return sum;
}

void FunctionLoops::make_scaler(Function& function) {
  ScalerOptions options = scaler_options_for(function.spec.idle);
  options.max_scale = 1;  // more would take turns on the same cores
  options.queue_depth = options_.queue_depth;
  function.scaler.emplace(options, clock_.now(),
                          static_cast<std::int32_t>(function.instances.size()));
}

FunctionLoops::Instance* FunctionLoops::instance_for(Function& function, std::int32_t adapter) {
  for (Instance& instance : function.instances) {
    if (instance.adapter == adapter && instance.loop->state() != EngineState::kFailed) {
      return &instance;
    }
  }
  return nullptr;
}

Status FunctionLoops::submit(Request request) {
  if (state_ != EngineState::kReady) {
    return unavailable("no function can start: the gateway loads or stops");
  }
  const std::int32_t unfinished = unfinished_requests();
  if (unfinished >= options_.max_requests) {
    return resource_exhausted(fmt::format("the queue is full: {} requests run or wait, at most {}",
                                          unfinished, options_.max_requests));
  }
  const std::int32_t number = request.function;
  Function& function = function_at(number);
  const TimePoint now = clock_.now();
  planner_.called(number, now);
  ++function.calls;
  if (!function.scaler) make_scaler(function);
  function.scaler->record(now, unfinished_of(function) + 1);
  Instance* const instance = instance_for(function, request.adapter);
  const bool cold = instance == nullptr || instance->loop->state() != EngineState::kReady;
  if (cold && !function.scaler->may_wait(unfinished_of(function))) {
    counts_.count(GatewayRefusal::kQueue);
    return resource_exhausted(
        fmt::format("'{}' is starting, and {} requests wait for it; try again later",
                    function.spec.name, unfinished_of(function)));
  }
  active_.insert(number);
  if (function.spec.ttft_slo.count() > 0) request.ttft_goal = function.spec.ttft_slo;
  function.waiting.push_back(std::move(request));
  dispatch();
  report_activity(number);
  return {};
}

void FunctionLoops::expect(std::int32_t number, std::int32_t adapter) {
  if (state_ != EngineState::kReady) return;
  Function& function = function_at(number);
  // Waiting requests have started what they need.
  if (!function.waiting.empty() || instance_for(function, adapter) != nullptr) return;
  const Place place = find_place(function.spec.backbone, false);
  if (!place.machine) return;
  if (!function.scaler) make_scaler(function);
  function.scaler->record(clock_.now(), 1);
  active_.insert(number);
  start_instance(number, adapter, *place.machine);
}

// The function whose oldest request came first is served first.
void FunctionLoops::start_needed() {
  std::vector<std::pair<TimePoint, std::int32_t>> order;
  for (const std::int32_t number : active_) {
    const Function& function = function_at(number);
    if (!function.waiting.empty()) order.emplace_back(function.waiting.front().arrival, number);
  }
  std::ranges::sort(order, {},
                    [](const auto& one) { return std::pair(one.first.since_start, one.second); });
  for (const auto& [arrival, number] : order) {
    if (!start_needed_by(number)) return;
  }
}

// False: there is no place for its instance, so later functions wait behind it.
bool FunctionLoops::start_needed_by(std::int32_t number) {
  Function& function = function_at(number);
  // An instance that never became ready takes its requests along; the next call tries again. Not so
  // if its machine is gone: they go elsewhere once it surely runs there no more.
  for (std::size_t i = function.instances.size(); i-- > 0;) {
    const Instance& instance = function.instances[i];
    if (instance.loop->is_lost()) {
      if (has_failed(instance)) end_instance(number, i);
      continue;
    }
    if (instance.ready_at || !has_failed(instance)) continue;
    const Error failure =
        instance.loop->failure().value_or(internal_error("a function has failed without a reason"));
    const std::int32_t adapter = instance.adapter;
    const std::int32_t machine = instance.machine;
    end_instance(number, i);
    if (machine > 0 && waits_for_memory(machine, function.spec.backbone, failure)) continue;
    refuse_waiting(function, adapter, failure);
  }
  if (function.waiting.empty()) return true;
  const std::int32_t adapter = function.waiting.front().adapter;
  if (instance_for(function, adapter) != nullptr) return true;
  const Place place = find_place(function.spec.backbone, true);
  if (place.machine) start_instance(number, adapter, *place.machine);
  return place.machine || place.loads;
}

void FunctionLoops::start_instance(std::int32_t number, std::int32_t adapter,
                                   std::int32_t machine) {
  Function& function = function_at(number);
  if (machine > 0) make_room_on(machine, function.spec.backbone);
  Instance& instance = function.instances.emplace_back();
  instance.adapter = adapter;
  instance.machine = machine;
  instance.number = ++last_number_;
  instance.last_use = clock_.now();
  instance.started = clock_.now();
  ++counts_.starts;
  instance.loop =
      host_.start_instance(machine, function.spec.backbone, adapter, function.spec.tenant);
  instance.was_warm = instance.loop->state() == EngineState::kReady;
  if (instance.was_warm) ++counts_.warm;
  ++num_instances_;
  if (machine == 0) {
    ++backbones_[static_cast<std::size_t>(function.spec.backbone)].instances;
    ++local_instances_;
  }
  report(number);
}

// It computes, or requests wait for it.
bool FunctionLoops::is_needed(const Function& function, const Instance& instance) {
  return instance.loop->unfinished_requests() > 0 ||
         std::ranges::find(function.waiting, instance.adapter, &Request::adapter) !=
             function.waiting.end();
}

// Keeps all that it has reported.
void FunctionLoops::end_instance(std::int32_t number, std::size_t index) {
  Function& function = function_at(number);
  Instance& instance = function.instances[index];
  collect(number, instance);
  function.ended_turns += instance.loop->use().turn_time - instance.turn_time;
  add_totals(instance.gauges, ended_);
  const bool is_local = instance.machine == 0;
  host_.end_instance(std::move(instance.loop));
  function.instances.erase(function.instances.begin() + static_cast<std::ptrdiff_t>(index));
  --num_instances_;
  if (is_local) {
    --backbones_[static_cast<std::size_t>(function.spec.backbone)].instances;
    --local_instances_;
  }
  report(number);
  wake_();
}

void FunctionLoops::report(std::int32_t number) {
  Function& function = function_at(number);
  FunctionSample sample;
  sample.live = !function.instances.empty();
  sample.turn_time = std::exchange(function.ended_turns, Duration(0));
  for (Instance& instance : function.instances) {
    const FunctionUse use = instance.loop->use();
    instance.own_bytes = use.own_bytes;
    sample.own_bytes += use.own_bytes;
    sample.turn_time += use.turn_time - std::exchange(instance.turn_time, use.turn_time);
  }
  usage_.sample(number, sample);
}

void FunctionLoops::report_activity(std::int32_t number) {
  Function& function = function_at(number);
  const bool active = unfinished_of(function) > 0;
  if (std::exchange(function.active, active) != active) usage_.set_active(number, active);
}

void FunctionLoops::tick() {
  if (state_ != EngineState::kReady) return;
  const TimePoint now = clock_.now();
  for (const std::int32_t number : active_) {
    end_unused(number, now);
    refuse_late(function_at(number), now);
    report(number);
    report_activity(number);
  }
  dispatch();
  std::erase_if(active_, [&](std::int32_t number) {
    const Function& function = function_at(number);
    return function.instances.empty() && function.waiting.empty();
  });
  plan_artifacts();
}

void FunctionLoops::report_usage() {
  for (const std::int32_t number : active_) report(number);
}

void FunctionLoops::end_unused(std::int32_t number, TimePoint now) {
  Function& function = function_at(number);
  std::int32_t ready = 0;
  for (const Instance& instance : function.instances) {
    ready += instance.loop->state() == EngineState::kReady ? 1 : 0;
  }
  const std::vector<RemoteMachine> machines = host_.machines();
  function.scaler->record(now, unfinished_of(function));
  const bool to_zero = function.scaler->decide(now, ready).instances == 0;
  for (std::size_t i = function.instances.size(); i-- > 0;) {
    Instance& instance = function.instances[i];
    const bool used = is_needed(function, instance);
    if (used) instance.last_use = now;
    const bool newest = i + 1 == function.instances.size();
    const bool wanted = used || (!to_zero && newest && !is_closing(instance, machines));
    // A lost one may still run until it has failed.
    const bool over = instance.loop->is_lost()
                          ? has_failed(instance)
                          : !wanted || (has_failed(instance) && instance.ready_at);
    if (over) end_instance(number, i);
  }
}

void FunctionLoops::refuse_late(Function& function, TimePoint now) {
  const Backbone& backbone = backbones_[static_cast<std::size_t>(function.spec.backbone)];
  if (backbone.load == Load::kLoading) return;  // the load ends
  const std::size_t before = function.waiting.size();
  while (!function.waiting.empty() &&
         now - function.waiting.front().arrival >= options_.longest_wait) {
    const bool in_memory = backbone.load == Load::kLoaded;
    refuse(
        function.waiting.front().id, GatewayRefusal::kPlace,
        resource_exhausted(
            in_memory ? fmt::format("'{}' has waited for a place for {} s: there are {} function "
                                    "processes, and none is idle; try again later, or start the "
                                    "gateway with a larger --max-functions",
                                    function.spec.name, to_seconds(options_.longest_wait),
                                    options_.max_instances)
                      : fmt::format("'{}' has waited for memory for {} s: its backbone has no room "
                                    "beside functions that compute; try again later",
                                    function.spec.name, to_seconds(options_.longest_wait))));
    function.waiting.pop_front();
  }
  const std::size_t refused = before - function.waiting.size();
  if (refused == 0) return;
  log_warning(fmt::format("{} calls of '{}' have waited for {} for {} s and were refused", refused,
                          function.spec.name, backbone.load == Load::kLoaded ? "a place" : "memory",
                          to_seconds(options_.longest_wait)));
}

void FunctionLoops::refuse(RequestId id, GatewayRefusal reason, Error error) {
  counts_.count(reason);
  pending_.refused.push_back({id, std::move(error)});
  wake_();
}

void FunctionLoops::refuse_waiting(Function& function, std::int32_t adapter, const Error& error) {
  std::erase_if(function.waiting, [&](Request& request) {
    if (request.adapter != adapter) return false;
    refuse(request.id, GatewayRefusal::kStart, error);
    return true;
  });
}

void FunctionLoops::cancel(RequestId id) {
  for (const std::int32_t number : active_) {
    Function& function = function_at(number);
    for (Instance& instance : function.instances) instance.loop->cancel(id);
    const auto found = std::ranges::find(function.waiting, id, &Request::id);
    if (found == function.waiting.end()) continue;
    for (std::int32_t choice = 0; choice < found->sampling.n; ++choice) {
      OutputEvent event;
      event.request = id;
      event.choice = choice;
      event.finish_reason = FinishReason::kCancelled;
      event.first_token = static_cast<std::uint32_t>(pending_.tokens.size());
      event.time = clock_.now();
      pending_.events.push_back(event);
    }
    function.waiting.erase(found);
    wake_();
  }
}

void FunctionLoops::end_choice(RequestId id, std::int32_t choice, FinishReason reason) {
  for (const std::int32_t number : active_) {
    for (Instance& instance : function_at(number).instances) {
      instance.loop->end_choice(id, choice, reason);
    }
  }
}

void FunctionLoops::ask_progress() {
  progress_wanted_ = true;
  progress_.clear();
  for (const std::int32_t number : active_) {
    for (Instance& instance : function_at(number).instances) {
      if (instance.loop->state() != EngineState::kReady) continue;
      instance.asked = true;
      instance.loop->ask_progress();
    }
  }
  wake_();  // no instance may answer
}

void FunctionLoops::collect(std::int32_t number, Instance& instance) {
  instance.loop->take(scratch_);
  note_tokens();
  usage_.count_output(number, std::ssize(scratch_.tokens));
  // The totals of a new process begin at zero.
  if (scratch_.gauges.totals.steps < instance.gauges.totals.steps) {
    add_totals(instance.gauges, ended_);
  }
  instance.gauges = scratch_.gauges;
  if (std::exchange(scratch_.has_progress, false) && std::exchange(instance.asked, false)) {
    progress_.insert(progress_.end(), scratch_.progress.begin(), scratch_.progress.end());
  }
  append_batch(std::move(scratch_), pending_);
}

void FunctionLoops::take(OutputBatch& batch) {
  batch.clear();
  bool asked = false;
  EngineGauges sum;
  bool any_waits = false;
  for (const std::int32_t number : active_) {
    Function& function = function_at(number);
    any_waits = any_waits || !function.waiting.empty();
    for (Instance& instance : function.instances) {
      note_ready(instance);
      collect(number, instance);
      asked = asked || instance.asked;
      add_gauges(instance.gauges, sum);
    }
    sum.waiting += static_cast<std::int32_t>(function.waiting.size());
    report_activity(number);
  }
  // An instance may be ready or idle now. Before the swap: this may refuse some.
  if (any_waits && state_ == EngineState::kReady) dispatch();
  std::swap(batch, pending_);
  add_totals(ended_, sum);
  batch.gauges = sum;
  if (asked || !progress_wanted_) return;
  progress_wanted_ = false;
  batch.has_progress = true;
  batch.progress = std::exchange(progress_, {});
}

}  // namespace sluice
