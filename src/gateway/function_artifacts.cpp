// The part of FunctionLoops that loads and unloads artifacts, by ArtifactPlanner.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "gateway/function_loops.h"

namespace sluice {
namespace {

// After a load for a call that had no room.
constexpr Duration kMemoryPause = std::chrono::seconds(1);
// After a load before a call, only a call tries again sooner.
constexpr Duration kLoadPause = std::chrono::seconds(30);
// The time of a start before one was measured.
constexpr Duration kSomeStart = std::chrono::milliseconds(50);

}  // namespace

std::int32_t FunctionLoops::add_backbone(const ArtifactUse& use, bool loaded) {
  const auto number = static_cast<std::int32_t>(backbones_.size());
  backbones_.push_back({loaded ? Load::kLoaded : Load::kAbsent, 0, use.bytes, {}, false});
  planner_.add_backbone(use);
  usage_.set_backbone_bytes(number, loaded ? use.bytes : 0);
  return number;
}

// A backbone that is being loaded is in use: requests may wait for it, and it cannot be unloaded.
std::vector<Residency> FunctionLoops::residency() const {
  std::vector<Residency> states;
  for (const Backbone& backbone : backbones_) {
    states.push_back(backbone.load == Load::kAbsent ? Residency::kAbsent
                     : backbone.load == Load::kLoading || backbone.instances > 0
                         ? Residency::kInUse
                         : Residency::kIdle);
  }
  for (const std::int32_t number : active_) {
    const Function& function = functions_[static_cast<std::size_t>(number)];
    Residency& state = states[static_cast<std::size_t>(function.spec.backbone)];
    if (!function.waiting.empty() && state == Residency::kIdle) state = Residency::kInUse;
  }
  return states;
}

Duration FunctionLoops::usual_start() const {
  return counts_.ready > 0 ? counts_.start_time / counts_.ready : kSomeStart;
}

ArtifactState FunctionLoops::artifacts() const {
  ArtifactState state;
  state.backbones = residency();
  for (std::int32_t b = 0; b < std::ssize(backbones_); ++b) {
    state.worker_uses.push_back({host_.worker_bytes(b), usual_start()});
    state.workers.push_back(backbones_[static_cast<std::size_t>(b)].workers);
  }
  for (std::int32_t f = 0; f < std::ssize(functions_); ++f) {
    if (!planner_.was_called(f)) continue;
    const auto adapter = host_.adapter(f);
    if (!adapter) continue;
    const Residency loaded = active_.contains(f) ? Residency::kInUse : Residency::kIdle;
    state.adapters[f] = {{adapter->bytes, adapter->load},
                         adapter->is_loaded ? loaded : Residency::kAbsent};
  }
  return state;
}

// One that starts may be for a call that is about to come.
bool FunctionLoops::is_idle_on(std::int32_t machine, std::int32_t number) const {
  if (!runs_on(machine, number)) return false;
  const Function& function = functions_[static_cast<std::size_t>(number)];
  return function.waiting.empty() &&
         std::ranges::all_of(function.instances, [&](const Instance& instance) {
           return instance.machine != machine ||
                  (!is_needed(function, instance) && !instance.loop->is_lost() &&
                   instance.loop->state() == EngineState::kReady);
         });
}

// A backbone with such processes only may leave together with them.
void FunctionLoops::add_idle_instances(std::int32_t machine, ArtifactState& state) const {
  std::vector<bool> needed(backbones_.size());
  for (const std::int32_t number : active_) {
    const Function& function = functions_[static_cast<std::size_t>(number)];
    if (!is_idle_on(machine, number)) {
      const bool is_here = !function.waiting.empty() || runs_on(machine, number);
      if (is_here) needed[static_cast<std::size_t>(function.spec.backbone)] = true;
      continue;
    }
    ArtifactUse use{0, usual_start()};
    for (const Instance& instance : function.instances) {
      if (instance.machine == machine) use.bytes += instance.own_bytes;
    }
    state.instances[number] = use;
  }
  for (const auto& [number, use] : state.instances) {
    const auto b =
        static_cast<std::size_t>(functions_[static_cast<std::size_t>(number)].spec.backbone);
    if (!needed[b]) state.backbones[b] = Residency::kIdle;
    const auto copy = state.copies ? state.adapters.find(number) : state.adapters.end();
    if (copy != state.adapters.end()) copy->second.residency = Residency::kIdle;
  }
}

void FunctionLoops::end_idle_instances(std::int32_t machine,
                                       const std::vector<std::int32_t>& functions) {
  for (const std::int32_t number : functions) {
    const Function& function = function_at(number);
    for (std::size_t i = function.instances.size(); i-- > 0;) {
      if (function.instances[i].machine == machine) end_instance(number, i);
    }
  }
}

void FunctionLoops::load_for_call(std::int32_t backbone) {
  std::int64_t missing = -host_.free_bytes();
  bool any_loads = false;
  for (std::int32_t b = 0; b < std::ssize(backbones_); ++b) {
    const Backbone& one = backbones_[static_cast<std::size_t>(b)];
    if (b == backbone || one.load == Load::kLoading) missing += one.bytes;
    any_loads = any_loads || one.load == Load::kLoading;
  }
  if (was_just_short(0, backbone)) return;
  if (missing > 0) {
    const auto leaving = room_for(0, missing, artifacts(), any_loads);
    if (!leaving) return;
    unload(*leaving);
  }
  load(backbone);
}

std::optional<ArtifactPlan::Set> FunctionLoops::room_for(std::int32_t machine, std::int64_t missing,
                                                         ArtifactState state, bool any_loads) {
  add_idle_instances(machine, state);
  auto leaving = planner_.make_room(clock_.now(), state, missing);
  if (leaving) return leaving;
  const bool any_runs = std::ranges::any_of(active_, [&](std::int32_t function) {
    return runs_on(machine, function) && !state.instances.contains(function);
  });
  if (any_loads || any_runs) return std::nullopt;
  return ArtifactPlan::Set();
}

bool FunctionLoops::waits_for_memory(std::int32_t machine, std::int32_t backbone,
                                     const Error& error) {
  const bool any_runs = std::ranges::any_of(active_, [&](std::int32_t function) {
    return runs_on(machine, function) && !is_idle_on(machine, function);
  });
  if (error.code != ErrorCode::kResourceExhausted || !any_runs) return false;
  short_until_[{machine, backbone}] = clock_.now() + kMemoryPause;
  return true;
}

bool FunctionLoops::was_just_short(std::int32_t machine, std::int32_t backbone) const {
  const auto found = short_until_.find({machine, backbone});
  return found != short_until_.end() && clock_.now() < found->second;
}

void FunctionLoops::load(std::int32_t backbone) {
  Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
  one.load = Load::kLoading;
  ++counts_.loads;
  host_.load_backbone(backbone);
}

void FunctionLoops::unload(std::int32_t backbone) {
  Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
  one.load = Load::kAbsent;
  one.workers = false;
  report_backbone(backbone);
  ++counts_.unloads;
  host_.unload_backbone(backbone);
}

void FunctionLoops::unload(const ArtifactPlan::Set& set) {
  end_idle_instances(0, set.instances);
  for (const std::int32_t backbone : set.workers) {
    backbones_[static_cast<std::size_t>(backbone)].workers = false;
    host_.keep_workers(backbone, false);
  }
  for (const std::int32_t backbone : set.backbones) unload(backbone);
  for (const std::int32_t function : set.adapters) host_.unload_adapter(function);
}

// Memory of a machine that idle artifacts may have, those that are there included.
std::int64_t FunctionLoops::memory_for_idle(const ArtifactState& state, std::int64_t free) const {
  const std::int64_t most = planner_.idle_bytes(state) + free;
  return idle_bytes_ ? std::min(*idle_bytes_, most) : most;
}

// An instance that a machine was told to start counts before the machine says so.
MachineArtifacts FunctionLoops::artifacts_of(std::int32_t machine,
                                             const RemoteMachine& remote) const {
  MachineArtifacts there;
  ArtifactState& state = there.state;
  for (std::int32_t b = 0; b < std::ssize(backbones_); ++b) {
    const RemoteBackbone& one = remote.backbones[static_cast<std::size_t>(b)];
    const bool in_use = one.is_loading || instances_on(machine, b) > 0;
    state.backbones.push_back(in_use          ? Residency::kInUse
                              : one.is_loaded ? Residency::kIdle
                                              : Residency::kAbsent);
    state.possible.push_back(remote.open && one.is_possible);
    const std::int64_t usual = host_.worker_bytes(b);
    const std::int64_t bytes = usual > 0 && one.worker_bytes > 0 ? one.worker_bytes : usual;
    state.worker_uses.push_back({bytes, usual_start()});
    // An agent may say anything; workers without their backbone do not count.
    state.workers.push_back(one.workers && state.backbones.back() != Residency::kAbsent);
  }
  add_copies(machine, state);
  std::int64_t left = remote.free_bytes;
  if (left > 0) left = std::max<std::int64_t>(0, left - coming_bytes(machine, remote));
  there.idle_bytes = memory_for_idle(state, left);
  there.takes = remote.open && instances_on(machine) < remote.places;
  return there;
}

std::int64_t FunctionLoops::coming_bytes(std::int32_t machine, const RemoteMachine& remote) const {
  std::int64_t coming = 0;
  for (std::int32_t b = 0; b < std::ssize(backbones_); ++b) {
    const auto i = static_cast<std::size_t>(b);
    const RemoteBackbone& one = remote.backbones[i];
    if (one.is_loaded || (!one.is_loading && instances_on(machine, b) == 0)) continue;
    coming += backbones_[i].bytes;
  }
  return coming;
}

bool FunctionLoops::runs_on(std::int32_t machine, std::int32_t function) const {
  if (!active_.contains(function)) return false;
  const auto& instances = functions_[static_cast<std::size_t>(function)].instances;
  return std::ranges::find(instances, machine, &Instance::machine) != instances.end();
}

// Adapters on another machine: those that could come from this one's memory. Calls start where
// their backbone is, so that none makes its backbone come.
void FunctionLoops::add_copies(std::int32_t machine, ArtifactState& state) const {
  state.copies = true;
  std::int64_t bytes = 0;  // of those that are there
  Duration took{0};        // their ways
  for (std::int32_t f = 0; f < std::ssize(functions_); ++f) {
    const std::int32_t backbone = functions_[static_cast<std::size_t>(f)].spec.backbone;
    const auto b = static_cast<std::size_t>(backbone);
    if (!planner_.was_called(f) || state.backbones[b] == Residency::kAbsent) continue;
    const auto own = host_.adapter(f);
    if (!own || !own->is_loaded) continue;
    const auto copy = host_.adapter_copy(machine, backbone, f);
    if (copy) {
      bytes += own->bytes;
      took += *copy;
    }
    state.adapters[f] = {{own->bytes, copy.value_or(own->load)},
                         runs_on(machine, f) ? Residency::kInUse
                         : copy              ? Residency::kIdle
                                             : Residency::kAbsent};
  }
  if (bytes == 0) return;
  for (auto& [f, adapter] : state.adapters) {
    if (adapter.residency != Residency::kAbsent) continue;
    const double part = static_cast<double>(adapter.use.bytes) / static_cast<double>(bytes);
    adapter.use.saves = from_seconds(to_seconds(took) * part);
  }
}

std::int64_t FunctionLoops::missing_on(std::int32_t machine, std::int32_t backbone,
                                       const RemoteMachine& remote) const {
  const RemoteBackbone& there = remote.backbones[static_cast<std::size_t>(backbone)];
  if (there.is_loaded || there.is_loading) return 0;
  return std::max<std::int64_t>(0, backbones_[static_cast<std::size_t>(backbone)].bytes +
                                       coming_bytes(machine, remote) - remote.free_bytes);
}

std::vector<bool> FunctionLoops::rooms(std::int32_t backbone,
                                       const std::vector<RemoteMachine>& machines) {
  std::vector<bool> rooms;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const auto machine = static_cast<std::int32_t>(i) + 1;
    const RemoteMachine& remote = machines[i];
    const RemoteBackbone& there = remote.backbones[static_cast<std::size_t>(backbone)];
    bool has_room = remote.open && there.is_possible && !was_just_short(machine, backbone);
    const std::int64_t missing = has_room ? missing_on(machine, backbone, remote) : 0;
    if (missing > 0) {
      const bool any_loads =
          std::ranges::any_of(remote.backbones, [](const auto& one) { return one.is_loading; });
      has_room =
          room_for(machine, missing, artifacts_of(machine, remote).state, any_loads).has_value();
    }
    rooms.push_back(has_room);
  }
  return rooms;
}

// Idle things of another machine leave if a backbone would not fit there.
void FunctionLoops::make_room_on(std::int32_t machine, std::int32_t backbone) {
  const RemoteMachine remote = host_.machines()[static_cast<std::size_t>(machine) - 1];
  const std::int64_t missing = missing_on(machine, backbone, remote);
  if (missing == 0) return;
  MachineArtifacts view = artifacts_of(machine, remote);
  ArtifactPlan plan;
  plan.unload = room_for(machine, missing, view.state, false).value_or(ArtifactPlan::Set());
  add_idle_instances(machine, view.state);
  end_idle_instances(machine, plan.unload.instances);
  host_.plan_machine(machine, remote_plan(remote, view.state, plan));
}

std::vector<RemoteHolding> FunctionLoops::remote_plan(const RemoteMachine& remote,
                                                      const ArtifactState& state,
                                                      const ArtifactPlan& plan) const {
  std::vector<RemoteHolding> holdings;
  for (std::size_t b = 0; b < remote.backbones.size(); ++b) {
    const bool stays = remote.backbones[b].is_loaded || state.backbones[b] == Residency::kInUse;
    holdings.push_back({stays, stays && remote.backbones[b].workers, {}});
  }
  const auto at = [&](std::int32_t backbone) -> RemoteHolding& {
    return holdings[static_cast<std::size_t>(backbone)];
  };
  const auto adapters_with = [&](std::int32_t function) -> std::vector<std::int32_t>& {
    return at(functions_[static_cast<std::size_t>(function)].spec.backbone).adapters;
  };
  for (const Residency residency : {Residency::kInUse, Residency::kIdle}) {
    for (const auto& [function, adapter] : state.adapters) {
      if (adapter.residency == residency) adapters_with(function).push_back(function);
    }
  }
  for (const std::int32_t function : plan.unload.adapters) {
    std::erase(adapters_with(function), function);
  }
  for (const std::int32_t backbone : plan.unload.workers) at(backbone).workers = false;
  for (const std::int32_t backbone : plan.unload.backbones) at(backbone) = {};
  if (!preload_) return holdings;
  for (const std::int32_t backbone : plan.load.backbones) at(backbone).weights = true;
  for (const std::int32_t backbone : plan.load.workers) {
    at(backbone).weights = at(backbone).workers = true;
  }
  for (const std::int32_t function : plan.load.adapters) {
    adapters_with(function).push_back(function);
  }
  return holdings;
}

void FunctionLoops::plan_artifacts() {
  const TimePoint now = clock_.now();
  const std::vector<RemoteMachine> machines = host_.machines();
  std::vector<MachineArtifacts> views(1);
  views[0].state = artifacts();
  views[0].idle_bytes = memory_for_idle(views[0].state, host_.free_bytes());
  views[0].takes = local_instances_ < options_.max_instances;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    views.push_back(artifacts_of(static_cast<std::int32_t>(i) + 1, machines[i]));
  }
  const std::vector<ArtifactPlan> plans = planner_.plan(now, views);
  follow(plans[0], now);
  for (std::size_t i = 0; i < machines.size(); ++i) {
    if (!machines[i].open) continue;
    host_.plan_machine(static_cast<std::int32_t>(i) + 1,
                       remote_plan(machines[i], views[i + 1].state, plans[i + 1]));
  }
}

void FunctionLoops::follow(const ArtifactPlan& plan, TimePoint now) {
  unload(plan.unload);
  if (!preload_) return;
  for (const std::int32_t backbone : plan.load.backbones) {
    if (now >= backbones_[static_cast<std::size_t>(backbone)].retry) load(backbone);
  }
  for (const std::int32_t backbone : plan.load.workers) {
    Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
    if (one.load != Load::kLoaded) continue;
    one.workers = true;
    host_.keep_workers(backbone, true);
  }
  for (const std::int32_t number : plan.load.adapters) {
    Function& function = function_at(number);
    if (now < function.adapter_retry) continue;
    function.adapter_retry = now + kLoadPause;
    host_.load_adapter(number);
  }
}

void FunctionLoops::backbone_loaded(std::int32_t backbone, const Status& status) {
  Backbone& loaded = backbones_[static_cast<std::size_t>(backbone)];
  CHECK(loaded.load == Load::kLoading);
  loaded.load = status ? Load::kLoaded : Load::kAbsent;
  if (status) report_backbone(backbone);
  if (state_ == EngineState::kStopped) return;
  if (!status && waits_for_memory(0, backbone, status.error())) {
    log_warning("a backbone waits for memory: " + status.error().message);
    loaded.retry = clock_.now() + kLoadPause;
  } else if (!status) {
    log_error("a backbone was not loaded: " + status.error().message);
    loaded.retry = clock_.now() + kLoadPause;
    for (const std::int32_t number : active_) {
      Function& function = function_at(number);
      if (function.spec.backbone != backbone) continue;
      for (Request& request : std::exchange(function.waiting, {})) {
        refuse(request.id, GatewayRefusal::kLoad, status.error());
      }
    }
  }
  dispatch();
}

}  // namespace sluice
