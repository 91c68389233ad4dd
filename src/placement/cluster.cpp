#include "placement/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice {
namespace {

std::int64_t divide_up(std::int64_t n, std::int64_t by) {
  return n >= 0 ? (n + by - 1) / by : -(-n / by);
}

}  // namespace

ServerLoad ModelPlacement::load(const Cluster& cluster, std::size_t server) const {
  ServerLoad load;
  for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
    const ModelKind& kind = cluster.kinds[k];
    const std::int32_t shards = counts[server][k] * kind.gpus;
    load.gpus += shards;
    load.spare_mb += shards * kind.spare_mb;
    load.producers += kind.is_producer() ? shards : -shards;
  }
  return load;
}

std::int64_t objective_mb(const Cluster& cluster, const ModelPlacement& placement) {
  std::int64_t spare = std::numeric_limits<std::int64_t>::min();
  std::int64_t producers = std::numeric_limits<std::int64_t>::min();
  for (std::size_t s = 0; s < placement.counts.size(); ++s) {
    const ServerLoad load = placement.load(cluster, s);
    spare = std::max(spare, load.spare_mb);
    producers = std::max<std::int64_t>(producers, load.producers);
  }
  return spare + cluster.gpu_memory_mb * producers;
}

std::int64_t spare_unit_mb(const Cluster& cluster) {
  std::int64_t unit = 0;
  for (const ModelKind& kind : cluster.kinds) {
    unit = std::gcd(unit, kind.gpus * kind.spare_mb);
  }
  return std::max<std::int64_t>(unit, 1);
}

PlacementLimits mean_limits(const Cluster& cluster) {
  std::int64_t spare = 0;
  std::int64_t producers = 0;
  for (const ModelKind& kind : cluster.kinds) {
    const std::int64_t shards = std::int64_t{kind.count} * kind.gpus;
    spare += shards * kind.spare_mb;
    producers += kind.is_producer() ? shards : -shards;
  }
  const std::int64_t unit = spare_unit_mb(cluster);
  return {unit * divide_up(spare, unit * cluster.servers), divide_up(producers, cluster.servers)};
}

std::int64_t mean_bound_mb(const Cluster& cluster) {
  const PlacementLimits means = mean_limits(cluster);
  return means.spare_mb + cluster.gpu_memory_mb * means.producers;
}

Status check_placement(const Cluster& cluster, const ModelPlacement& placement) {
  if (placement.counts.size() != static_cast<std::size_t>(cluster.servers)) {
    return internal_error(fmt::format("the placement has {} servers, the cluster {}",
                                      placement.counts.size(), cluster.servers));
  }
  std::vector<std::int32_t> placed(cluster.kinds.size());
  for (std::size_t s = 0; s < placement.counts.size(); ++s) {
    for (std::size_t k = 0; k < placed.size(); ++k) {
      if (placement.counts[s][k] < 0) return internal_error("the placement has a negative count");
      placed[k] += placement.counts[s][k];
    }
    const std::int32_t gpus = placement.load(cluster, s).gpus;
    if (gpus > cluster.gpus_per_server) {
      return internal_error(fmt::format("the placement has {} shards on server {} of {} GPUs", gpus,
                                        s, cluster.gpus_per_server));
    }
  }
  for (std::size_t k = 0; k < placed.size(); ++k) {
    if (placed[k] == cluster.kinds[k].count) continue;
    return internal_error(fmt::format("the placement has {} models of kind {}, the cluster {}",
                                      placed[k], cluster.kinds[k].name, cluster.kinds[k].count));
  }
  return {};
}

}  // namespace sluice
