#include "serverless/artifact_catalog.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

std::int32_t ArtifactCatalog::add_artifact(ArtifactKind kind) {
  kinds_.push_back(kind);
  return artifacts_.num_artifacts++;
}

ArtifactCatalog::ArtifactCatalog(const CatalogSpec& spec) : hosts_(spec.hosts) {
  const auto devices = static_cast<std::int32_t>(spec.host_of_device.size());
  artifacts_.num_memories = spec.hosts + devices;
  std::vector<Place> places;
  for (std::int32_t host = 0; host < spec.hosts; ++host) {
    const bool computes = std::ranges::find(spec.host_of_device, host) == spec.host_of_device.end();
    if (computes) places.push_back({host, host});
  }
  for (std::int32_t device = 0; device < devices; ++device) {
    const std::int32_t host = spec.host_of_device[static_cast<std::size_t>(device)];
    CHECK(host >= 0 && host < spec.hosts);
    places.push_back({host, spec.hosts + device});
  }
  for (const Place& place : places) places_.push_back(place.memory);
  const std::int32_t worker = add_artifact(ArtifactKind::kWorker);
  for (std::int32_t host = 0; host < spec.hosts; ++host) {
    workers_.push_back(artifacts_.add(worker, host, spec.worker.bytes, spec.worker.seconds));
  }
  std::vector<BackbonePlacements> backbones;
  std::vector<std::vector<std::int32_t>> used;  // artifacts, by backbone
  for (const BackboneCosts& costs : spec.backbones) {
    used.push_back({worker});
    backbones.push_back(add_backbone(costs, places, used.back()));
  }
  for (const FunctionCosts& costs : spec.functions) {
    const auto backbone = static_cast<std::size_t>(costs.backbone);
    CHECK(backbone < backbones.size());
    artifacts_of_.push_back(used[backbone]);
    add_function(costs, places, backbones[backbone]);
  }
}

ArtifactCatalog::BackbonePlacements ArtifactCatalog::add_backbone(const BackboneCosts& costs,
                                                                  const std::vector<Place>& places,
                                                                  std::vector<std::int32_t>& used) {
  const std::int32_t weights = add_artifact(ArtifactKind::kBackbone);
  const std::int32_t pages = add_artifact(ArtifactKind::kBackbonePages);
  const std::int32_t kernels = add_artifact(ArtifactKind::kKernels);
  used.insert(used.end(), {weights, pages, kernels});
  std::vector<std::int32_t> on_host;
  for (std::int32_t host = 0; host < hosts_; ++host) {
    on_host.push_back(artifacts_.add(weights, host, costs.host.bytes, costs.host.seconds));
  }
  BackbonePlacements placements;
  for (const Place& place : places) {
    const std::int32_t worker = workers_[static_cast<std::size_t>(place.host)];
    std::int32_t copy = on_host[static_cast<std::size_t>(place.host)];
    if (place.memory != place.host) {
      copy = artifacts_.add(weights, place.memory, costs.device.bytes,
                            costs.host.seconds + costs.device.seconds, {worker});
    }
    const std::int32_t mapped =
        artifacts_.add(pages, place.memory, costs.pages.bytes, costs.pages.seconds, {worker, copy});
    placements.weights.push_back(copy);
    placements.kernels.push_back(artifacts_.add(kernels, place.memory, costs.kernels.bytes,
                                                costs.kernels.seconds, {mapped}));
  }
  return placements;
}

void ArtifactCatalog::add_function(const FunctionCosts& costs, const std::vector<Place>& places,
                                   const BackbonePlacements& backbone) {
  const std::int32_t adapter = costs.has_adapter ? add_artifact(ArtifactKind::kAdapter) : -1;
  const std::int32_t instance = add_artifact(ArtifactKind::kInstance);
  if (costs.has_adapter) artifacts_of_.back().push_back(adapter);
  artifacts_of_.back().push_back(instance);
  instances_.emplace_back();
  for (std::size_t p = 0; p < places.size(); ++p) {
    const Place& place = places[p];
    const std::int32_t kernels = backbone.kernels[p];
    if (!costs.has_adapter) {
      instances_.back().push_back(artifacts_.add(instance, place.memory, costs.instance.bytes,
                                                 costs.instance.seconds, {kernels}));
      continue;
    }
    const std::int32_t weights = backbone.weights[p];
    std::int32_t copy = artifacts_.add(adapter, place.host, costs.adapter_host.bytes,
                                       costs.adapter_host.seconds, {weights});
    if (place.memory != place.host) {
      copy = artifacts_.add(adapter, place.memory, costs.adapter_device.bytes,
                            costs.adapter_host.seconds + costs.adapter_device.seconds, {weights});
    }
    instances_.back().push_back(artifacts_.add(instance, place.memory, costs.instance.bytes,
                                               costs.instance.seconds, {kernels, copy}));
  }
}

std::vector<double> ArtifactCatalog::rates(std::span<const double> function_rates) const {
  CHECK(function_rates.size() == artifacts_of_.size());
  std::vector<double> rates(static_cast<std::size_t>(artifacts_.num_artifacts), 0);
  for (std::size_t f = 0; f < function_rates.size(); ++f) {
    for (const std::int32_t artifact : artifacts_of_[f]) {
      rates[static_cast<std::size_t>(artifact)] += function_rates[f];
    }
  }
  return rates;
}

}  // namespace sluice
