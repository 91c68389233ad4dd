// ArtifactCatalog: the artifacts of some functions on some machines, for the policies of
// pre-loading and offloading. Each kind is listed with the memory that it takes and with what it
// needs:
//
//   warm worker      host memory; a process that has started and waits in its sandbox
//   backbone         host memory, or a device's: needs a worker there
//   backbone pages   where the backbone is: its pages, mapped and filled in a worker
//   kernels          kernels or graphs for a backbone: needs its pages
//   adapter          host memory or a device's: needs its backbone where it computes
//   instance         a live function: needs kernels and, if it has one, its adapter
//
// A place computes: a device, or a host without devices. There the host's memory is the only one.
// An adapter in host memory lies at the host of the device that has its backbone (the paper's
// coupling), once for each such device.
// Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serverless/artifact.h"

namespace sluice {

enum class ArtifactKind : std::uint8_t {
  kWorker,
  kBackbone,
  kBackbonePages,
  kKernels,
  kAdapter,
  kInstance,
};

// As measured on this kind of machine: memory, and the delay until it is there.
struct ArtifactCost {
  std::int64_t bytes = 0;
  double seconds = 0;
};

struct BackboneCosts {
  ArtifactCost host;    // read into host memory
  ArtifactCost device;  // and from there to a device
  ArtifactCost pages;
  ArtifactCost kernels;
};

struct FunctionCosts {
  std::int32_t backbone = 0;
  bool has_adapter = true;
  ArtifactCost adapter_host;
  ArtifactCost adapter_device;
  ArtifactCost instance;
};

struct CatalogSpec {
  std::int32_t hosts = 1;
  std::vector<std::int32_t> host_of_device;  // of each device
  ArtifactCost worker;
  std::vector<BackboneCosts> backbones;
  std::vector<FunctionCosts> functions;
};

class ArtifactCatalog {
 public:
  explicit ArtifactCatalog(const CatalogSpec& spec);

  // Memories are the hosts', then the devices'.
  const Artifacts& artifacts() const { return artifacts_; }
  ArtifactKind kind(std::int32_t artifact) const {
    return kinds_[static_cast<std::size_t>(artifact)];
  }
  // The memories of the places that compute.
  std::span<const std::int32_t> places() const { return places_; }
  // The placement of a function's instance at a place (an index of places()).
  std::int32_t instance(std::int32_t function, std::int32_t place) const {
    return instances_[static_cast<std::size_t>(function)][static_cast<std::size_t>(place)];
  }
  // The arrivals per second of all functions that use an artifact, for each artifact: a shared one
  // counts once, with the sum of its functions. REQUIRES: a rate for each function.
  std::vector<double> rates(std::span<const double> function_rates) const;

 private:
  struct Place {
    std::int32_t host = 0;
    std::int32_t memory = 0;
  };
  // Placements of a backbone at each place that computes.
  struct BackbonePlacements {
    std::vector<std::int32_t> weights;
    std::vector<std::int32_t> kernels;
  };

  std::int32_t add_artifact(ArtifactKind kind);
  BackbonePlacements add_backbone(const BackboneCosts& costs, const std::vector<Place>& places,
                                  std::vector<std::int32_t>& used);
  void add_function(const FunctionCosts& costs, const std::vector<Place>& places,
                    const BackbonePlacements& backbone);

  Artifacts artifacts_;
  std::vector<ArtifactKind> kinds_;
  std::vector<std::int32_t> places_;
  std::int32_t hosts_ = 0;
  std::vector<std::int32_t> workers_;                    // placements, by host
  std::vector<std::vector<std::int32_t>> instances_;     // placements, by function and place
  std::vector<std::vector<std::int32_t>> artifacts_of_;  // artifacts, by function
};

}  // namespace sluice
