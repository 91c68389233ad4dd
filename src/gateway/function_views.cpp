// The part of FunctionLoops that others see and change: an operator by hand, and the division of KV
// memory.
#include <fmt/format.h>

#include <algorithm>

#include "gateway/function_loops.h"

namespace sluice {

FunctionView FunctionLoops::view(std::int32_t number) const {
  const Function& function = functions_[static_cast<std::size_t>(number)];
  FunctionView view;
  view.calls = function.calls;
  view.ttft = prefills_.ttft(number);
  view.waiting = static_cast<std::int32_t>(function.waiting.size());
  if (view.waiting > 0) view.phase = FunctionPhase::kHeld;
  for (const Instance& instance : function.instances) {
    view.running += instance.loop->unfinished_requests();
    view.own_bytes += instance.own_bytes;
    view.machines.push_back(instance.machine);
    const bool ready = instance.ready_at && instance.loop->state() == EngineState::kReady;
    view.phase = std::max(view.phase, ready ? FunctionPhase::kReady : FunctionPhase::kStarting);
  }
  const auto adapter = host_.adapter(number);
  if (adapter && adapter->is_loaded) view.adapter_bytes = adapter->bytes;
  return view;
}

BackboneView FunctionLoops::backbone_view(std::int32_t number) const {
  const Backbone& backbone = backbones_[static_cast<std::size_t>(number)];
  BackboneView view;
  view.is_loaded = backbone.load == Load::kLoaded;
  view.is_loading = backbone.load == Load::kLoading;
  view.bytes = backbone.bytes;
  view.instances = backbone.instances;
  if (backbone.workers) view.worker_bytes = host_.worker_bytes(number);
  return view;
}

std::vector<DividedLoops::Kv> FunctionLoops::kv(std::int64_t& ending) const {
  std::vector<Kv> all;
  for (const std::int32_t number : active_) {
    for (const Instance& instance : functions_[static_cast<std::size_t>(number)].instances) {
      if (instance.machine == 0) all.push_back({instance.number, instance.loop->kv()});
    }
  }
  ending = host_.ending_kv_bytes();
  return all;
}

void FunctionLoops::limit_kv(std::uint64_t loop, std::int64_t bytes) {
  for (const std::int32_t number : active_) {
    for (const Instance& instance : function_at(number).instances) {
      if (instance.number == loop) instance.loop->limit_kv(bytes);
    }
  }
}

Status FunctionLoops::end_idle(std::int32_t number) {
  Function& function = function_at(number);
  if (function.instances.empty()) {
    return not_found(fmt::format("'{}' has no process", function.spec.name));
  }
  for (const Instance& instance : function.instances) {
    if (!is_needed(function, instance) && !instance.loop->is_lost()) continue;
    return unavailable(fmt::format("'{}' has calls; its process can end when they have ended",
                                   function.spec.name));
  }
  while (!function.instances.empty()) end_instance(number, function.instances.size() - 1);
  dispatch();  // others may wait for its place
  return {};
}

Status FunctionLoops::load_by_hand(std::int32_t backbone) {
  Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
  if (one.load != Load::kAbsent) return unavailable("the backbone is in memory, or being loaded");
  load_for_call(backbone);
  if (one.load == Load::kLoading) return {};
  return unavailable("the backbone has no room in memory beside functions that compute or start");
}

Status FunctionLoops::unload_by_hand(std::int32_t backbone) {
  Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
  if (one.load == Load::kAbsent) return not_found("the backbone is not in memory");
  if (residency()[static_cast<std::size_t>(backbone)] != Residency::kIdle) {
    return unavailable(
        "the backbone is in use, or being loaded; it can leave when its functions have no process "
        "and no call");
  }
  unload(backbone);
  one.retry = clock_.now() + ArtifactPlanner::kHorizon;
  return {};
}

}  // namespace sluice
