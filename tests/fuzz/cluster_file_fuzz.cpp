// Cluster files of `sluice place`. An accepted cluster is within its limits; the greedy placement
// of a small one keeps all constraints and its bound.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "placement/cluster_file.h"
#include "placement/greedy_placer.h"
#include "placement/placer_program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto cluster = parse_cluster(text, "c.json");
  if (!cluster) {
    CHECK(cluster.error().message.starts_with("c.json"));
    return 0;
  }
  CHECK(cluster->servers >= 1 && cluster->servers <= Cluster::kMaxServers);
  if (cluster->servers * cluster->gpus_per_server > 64) return 0;
  // The input also stands for a solver's answer.
  static_cast<void>(parse_solution(*cluster, text));
  const auto placed = place_greedily(*cluster);
  if (!placed) return 0;
  CHECK(check_placement(*cluster, *placed).has_value());
  CHECK(objective_mb(*cluster, *placed) >= mean_bound_mb(*cluster));
  return 0;
}
