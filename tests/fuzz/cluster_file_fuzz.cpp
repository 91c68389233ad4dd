// Cluster files of `sluice place`. An accepted cluster is within its limits; the greedy placement
// of a small one keeps all constraints and its bound. A line "%%" separates it from CBC's solution
// of the cluster's programs.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "placement/cluster_file.h"
#include "placement/greedy_placer.h"
#include "placement/placer_program.h"
#include "placement/server_patterns.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  constexpr std::string_view kMark = "\n%%\n";
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string_view solved;
  if (const std::size_t mark = text.find(kMark); mark != std::string_view::npos) {
    solved = text.substr(mark + kMark.size());
    text = text.substr(0, mark);
  }
  const auto cluster = parse_cluster(text, "c.json");
  if (!cluster) {
    CHECK(cluster.error().message.starts_with("c.json"));
    return 0;
  }
  CHECK(cluster->servers >= 1 && cluster->servers <= Cluster::kMaxServers);
  if (cluster->servers * cluster->gpus_per_server > 64) return 0;
  static_cast<void>(parse_lower_bound(solved));
  if (const auto solution = parse_cbc_solution(solved)) {
    static_cast<void>(placement_of(*cluster, *solution));
    const auto patterns = ServerPatterns::list(*cluster, {1'000'000, cluster->gpus_per_server});
    if (patterns) static_cast<void>(patterns->placement_of(*solution));
  }
  const auto placed = place_greedily(*cluster);
  if (!placed) return 0;
  CHECK(check_placement(*cluster, *placed).has_value());
  CHECK(objective_mb(*cluster, *placed) >= mean_bound_mb(*cluster));
  return 0;
}
