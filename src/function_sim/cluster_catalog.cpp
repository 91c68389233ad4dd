#include "function_sim/cluster_catalog.h"

#include <cstddef>

namespace sluice {
namespace {

std::size_t slot_of(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

CatalogSpec catalog_of(const ClusterSpec& cluster, std::span<const SimulatedFunction> functions,
                       const SystemSpec& system) {
  CatalogSpec spec;
  spec.host_of_device.assign(slot_of(cluster.devices), 0);
  spec.worker = cluster.worker;
  const auto add_backbone = [&](const ModelTimes& model) {
    spec.backbones.push_back(model.weights);
    spec.backbones.back().host.seconds /= system.disk_speed;
  };
  if (system.shares_backbones) {
    for (const ModelTimes& model : cluster.models) add_backbone(model);
  }
  for (std::size_t f = 0; f < functions.size(); ++f) {
    const ModelTimes& model = cluster.models[slot_of(functions[f].model)];
    if (!system.shares_backbones) add_backbone(model);
    FunctionCosts costs;
    costs.backbone = system.shares_backbones ? functions[f].model : static_cast<std::int32_t>(f);
    costs.has_adapter = functions[f].adapters > 0;
    costs.adapter_host = model.adapter_host;
    costs.adapter_device = model.adapter_device;
    costs.adapter_host.bytes *= functions[f].adapters;
    costs.adapter_device.bytes *= functions[f].adapters;
    costs.instance = model.instance;
    spec.functions.push_back(costs);
  }
  return spec;
}

std::vector<std::int64_t> memories_of(const ClusterSpec& cluster) {
  // Memories are the host's, then the devices'.
  std::vector<std::int64_t> capacity(slot_of(cluster.devices) + 1, cluster.device_bytes);
  capacity[0] = cluster.host_bytes;
  return capacity;
}

}  // namespace sluice
