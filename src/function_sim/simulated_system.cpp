#include "function_sim/simulated_system.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"

namespace sluice {
namespace {

using enum ArtifactKind;

SystemSpec sluice_system(std::string name) {
  SystemSpec system;
  system.name = std::move(name);
  system.preloads = {kWorker, kBackbone, kBackbonePages, kKernels, kAdapter, kInstance};
  return system;
}

// Variants #1 to #3 of ServerlessLoRA's section 6.6.
SystemSpec fixed_batches(std::int32_t size, Duration delay) {
  SystemSpec system = sluice_system(fmt::format("sluice-batch-{}", size));
  system.batching = Batching::kFixed;
  system.fixed = {size, delay};
  return system;
}

SystemSpec other_system(std::string name) {
  SystemSpec system;
  system.name = std::move(name);
  system.refuses = false;
  return system;
}

void add_ablations(std::vector<SystemSpec>& systems) {
  systems.push_back(sluice_system("sluice-no-sharing"));
  systems.back().shares_backbones = false;
  systems.push_back(sluice_system("sluice-no-preload"));
  systems.back().preloads = {};
  systems.push_back(sluice_system("sluice-no-offload"));
  systems.back().keeps = false;
  systems.push_back(sluice_system("sluice-fill-or-expire"));
  systems.back().batching = Batching::kFillOrExpire;
  systems.push_back(fixed_batches(1, Duration(0)));
  systems.push_back(fixed_batches(10, std::chrono::milliseconds(500)));
  systems.push_back(fixed_batches(20, std::chrono::seconds(1)));
}

std::vector<SystemSpec> all_systems() {
  std::vector<SystemSpec> systems = {sluice_system("sluice")};
  add_ablations(systems);
  systems.push_back(other_system("vllm"));
  systems.back().always_on = true;
  // One process for each backbone, with all of its adapters.
  systems.push_back(other_system("dlora"));
  systems.back().always_on = true;
  systems.back().merges = true;
  // Loads libraries and models of single functions before calls, and no kernels.
  systems.push_back(other_system("instainfer"));
  systems.back().shares_backbones = false;
  systems.back().preloads = {kWorker, kBackbone, kAdapter};
  // Loads checkpoints 6 times as fast, and keeps them in host memory.
  systems.push_back(other_system("serverlessllm"));
  systems.back().shares_backbones = false;
  systems.back().keeps = false;
  systems.back().disk_speed = 6;
  return systems;
}

}  // namespace

Result<SystemSpec> system_named(std::string_view name) {
  for (SystemSpec& system : all_systems()) {
    if (system.name == name) return std::move(system);
  }
  return invalid_argument(
      fmt::format("there is no system '{}'; expected one of {}", name, join(system_names(), ", ")));
}

std::vector<std::string> system_names() {
  std::vector<std::string> names;
  for (const SystemSpec& system : all_systems()) names.push_back(system.name);
  return names;
}

}  // namespace sluice
