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
                                                      const std::vector<bool>& rooms,
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
                   .loaded = there.is_loaded && rooms[i],
                   .can_load = rooms[i],
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
  const std::vector<bool> have_room = rooms(backbone, machines);
  auto best = free_place(backbone, machines, have_room);
  if (!best && make_room && make_place(backbone, have_room)) {
    best = free_place(backbone, machines, have_room);
  }
  if (!best) return {.loads = lacks_room(backbone, machines, have_room)};
  if (best->loaded || best->machine > 0) return {.machine = best->machine};
  if (local.load == Load::kAbsent) load_for_call(backbone);
  if (local.load == Load::kAbsent) best = free_place(backbone, machines, have_room, false);
  if (best && best->machine > 0) return {.machine = best->machine};
  return {.loads = true};
}

// A machine with a free place lacks memory for the backbone.
bool FunctionLoops::lacks_room(std::int32_t backbone, const std::vector<RemoteMachine>& machines,
                               const std::vector<bool>& rooms) const {
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const bool has_place = instances_on(static_cast<std::int32_t>(i) + 1) < machines[i].places;
    if (offers(machines[i], backbone) && has_place && !rooms[i]) return true;
  }
  return false;
}

// Ends the instance that has been idle for longest, of those whose place would do.
bool FunctionLoops::make_place(std::int32_t backbone, const std::vector<bool>& rooms) {
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
      if (machine == 0 ? !here : !rooms[machine - 1]) continue;
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
