// The part of FunctionLoops that decides where an instance starts: on this machine or on another.
#include <algorithm>
#include <utility>

#include "gateway/function_loops.h"
#include "serverless/instance_placer.h"

namespace sluice {
namespace {

bool offers(const RemoteMachine& machine, std::int32_t backbone) {
  return machine.open && machine.backbones[static_cast<std::size_t>(backbone)].is_possible;
}

}  // namespace

std::int32_t FunctionLoops::instances_on(std::int32_t machine,
                                         std::optional<std::int32_t> backbone) const {
  std::int32_t count = 0;
  for (const std::int32_t number : active_) {
    const Function& function = functions_[static_cast<std::size_t>(number)];
    if (backbone && function.spec.backbone != *backbone) continue;
    count += static_cast<std::int32_t>(
        std::ranges::count(function.instances, machine, &Instance::machine));
  }
  return count;
}

// This machine's place, if it `can_load` the backbone, or another one's that has the backbone.
std::optional<MachineOffer> FunctionLoops::free_place(std::int32_t backbone,
                                                      const std::vector<RemoteMachine>& machines,
                                                      bool can_load) const {
  const Backbone& local = backbones_[static_cast<std::size_t>(backbone)];
  std::vector<MachineOffer> all = {{.machine = 0,
                                    .places = options_.max_instances,
                                    .used = local_instances_,
                                    .loaded = local.load == Load::kLoaded,
                                    .can_load = can_load,
                                    .warm = local.workers}};
  for (std::size_t i = 0; i < machines.size(); ++i) {
    if (!offers(machines[i], backbone)) continue;
    const auto number = static_cast<std::int32_t>(i) + 1;
    const RemoteBackbone& there = machines[i].backbones[static_cast<std::size_t>(backbone)];
    all.push_back({.machine = number,
                   .places = machines[i].places,
                   .used = instances_on(number),
                   .loaded = there.is_loaded,
                   .can_load = true,
                   .warm = there.workers});
  }
  return place_instance(all);
}

FunctionLoops::Place FunctionLoops::find_place(std::int32_t backbone, bool make_room) {
  const std::vector<RemoteMachine> machines = host_.machines();
  const Backbone& local = backbones_[static_cast<std::size_t>(backbone)];
  const bool elsewhere = std::ranges::any_of(
      machines, [&](const RemoteMachine& machine) { return offers(machine, backbone); });
  if (!elsewhere && local.load == Load::kAbsent) load_for_call(backbone);
  if (!elsewhere && local.load != Load::kLoaded) return {.loads = true};
  auto best = free_place(backbone, machines);
  if (!best && make_room && make_place(backbone, machines)) best = free_place(backbone, machines);
  if (!best) return {};
  if (best->loaded || best->machine > 0) return {.machine = best->machine};
  if (local.load == Load::kAbsent) load_for_call(backbone);
  if (local.load == Load::kAbsent) best = free_place(backbone, machines, false);
  if (best && best->machine > 0) return {.machine = best->machine};
  return {.loads = true};
}

// Ends the instance that has been idle for longest, of those whose place would do.
bool FunctionLoops::make_place(std::int32_t backbone, const std::vector<RemoteMachine>& machines) {
  std::optional<std::int32_t> owner;
  TimePoint last_use;
  std::size_t index = 0;
  const bool here = backbones_[static_cast<std::size_t>(backbone)].load == Load::kLoaded;
  for (const std::int32_t number : active_) {
    Function& function = function_at(number);
    for (std::size_t i = 0; i < function.instances.size(); ++i) {
      const Instance& instance = function.instances[i];
      if (is_needed(function, instance) || instance.loop->is_lost()) continue;
      const auto machine = static_cast<std::size_t>(instance.machine);
      if (machine == 0 ? !here : !offers(machines[machine - 1], backbone)) continue;
      if (owner && instance.last_use >= last_use) continue;
      owner = number;
      last_use = instance.last_use;
      index = i;
    }
  }
  if (!owner) return false;
  end_instance(*owner, index);
  return true;
}

bool FunctionLoops::is_closing(const Instance& instance,
                               const std::vector<RemoteMachine>& machines) {
  return instance.machine > 0 && !machines[static_cast<std::size_t>(instance.machine) - 1].open;
}

// Its weights are in the memory of each machine that has it.
void FunctionLoops::report_backbone(std::int32_t backbone) {
  const Backbone& one = backbones_[static_cast<std::size_t>(backbone)];
  std::int64_t copies = one.load == Load::kLoaded ? 1 : 0;
  for (const RemoteMachine& machine : host_.machines()) {
    copies += machine.backbones[static_cast<std::size_t>(backbone)].is_loaded ? 1 : 0;
  }
  usage_.set_backbone_bytes(backbone, copies * one.bytes);
}

void FunctionLoops::machines_changed() {
  if (state_ != EngineState::kReady) return;
  for (std::int32_t b = 0; b < std::ssize(backbones_); ++b) report_backbone(b);
  dispatch();
}

}  // namespace sluice
