// Cluster and ModelPlacement: models of known memory needs on servers of equal GPUs, and which
// server each model is on. The placer of Aqua (https://arxiv.org/abs/2407.21255, section 5) decides
// it.
//
// A model runs on `gpus` GPUs of one server (its tensor-parallel group), one shard on a GPU. Each
// of its GPUs has `spare_mb` of memory to lend (a producer) or lacks so much (negative: a
// consumer). Models of one kind are alike, so a placement is a count per server and kind.
// Values: plain; any thread. Units: MB are 10^6 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

struct ModelKind {
  std::string name;
  std::int32_t count = 0;     // models
  std::int32_t gpus = 1;      // of each model
  std::int64_t spare_mb = 0;  // of each GPU; negative: what it lacks

  // A model without spare memory that lacks none counts as a producer, as in the paper.
  bool is_producer() const { return spare_mb >= 0; }
};

struct Cluster {
  static constexpr std::int32_t kMaxServers = 1024;
  static constexpr std::int32_t kMaxGpusPerServer = 128;
  static constexpr std::int32_t kMaxKinds = 64;

  std::int32_t servers = 0;
  std::int32_t gpus_per_server = 0;
  std::int64_t gpu_memory_mb = 0;
  std::vector<ModelKind> kinds;
};

// Sums over one server.
struct ServerLoad {
  std::int32_t gpus = 0;
  std::int64_t spare_mb = 0;   // equation 4: the net memory, R
  std::int32_t producers = 0;  // equation 5: GPUs of producers less those of consumers, N
};

struct ModelPlacement {
  std::vector<std::vector<std::int32_t>> counts;  // [server][kind], models

  ServerLoad load(const Cluster& cluster, std::size_t server) const;
};

// Equation 6: the largest R plus the GPU memory times the largest N. The two maxima may be of
// different servers, and both may be negative.
std::int64_t objective_mb(const Cluster& cluster, const ModelPlacement& placement);

struct PlacementLimits {
  std::int64_t spare_mb = 0;   // no server has a larger R
  std::int64_t producers = 0;  // nor a larger N
};

// No placement keeps lower limits than these: no maximum is below its mean.
PlacementLimits mean_limits(const Cluster& cluster);

// A lower bound of the objective of every placement, from the means.
std::int64_t mean_bound_mb(const Cluster& cluster);

// The largest number that divides R of every server of every placement; at least 1.
std::int64_t spare_unit_mb(const Cluster& cluster);

// Whether the placement has every model exactly once (equation 1) and no server has more shards
// than GPUs (3). Groups stay together by construction (2).
Status check_placement(const Cluster& cluster, const ModelPlacement& placement);

}  // namespace sluice
