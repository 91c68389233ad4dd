#include "apps/place.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/exit_code.h"
#include "apps/number_range.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "placement/cluster_file.h"
#include "placement/place_models.h"
#include "placement/stable_match.h"

namespace sluice {
namespace {

using PlaceJson = nlohmann::ordered_json;

struct PlacedGpu {
  std::string model;  // "llama#0", with ".1" for the second shard of a group
  std::int64_t spare_mb = 0;
};

double gb(std::int64_t mb) { return static_cast<double>(mb) / 1000; }

// The GPUs of all servers; the models of a kind are numbered over the cluster.
std::vector<std::vector<PlacedGpu>> place_gpus(const Cluster& cluster,
                                               const ModelPlacement& placement) {
  std::vector<std::int32_t> next(cluster.kinds.size());
  std::vector<std::vector<PlacedGpu>> servers;
  for (const std::vector<std::int32_t>& counts : placement.counts) {
    std::vector<PlacedGpu> gpus;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const ModelKind& kind = cluster.kinds[k];
      for (std::int32_t i = 0; i < counts[k]; ++i) {
        const std::int32_t model = next[k]++;
        for (std::int32_t shard = 0; shard < kind.gpus; ++shard) {
          std::string name = fmt::format("{}#{}", kind.name, model);
          if (kind.gpus > 1) name += fmt::format(".{}", shard);
          gpus.push_back({std::move(name), kind.spare_mb});
        }
      }
    }
    servers.push_back(std::move(gpus));
  }
  return servers;
}

std::vector<MemoryPair> pairs_of(const std::vector<PlacedGpu>& gpus) {
  std::vector<std::int64_t> spare;
  for (const PlacedGpu& gpu : gpus) spare.push_back(gpu.spare_mb);
  return match_memory(spare);
}

const std::string& name_of(const std::vector<PlacedGpu>& gpus, std::int32_t index) {
  return gpus[static_cast<std::size_t>(index)].model;
}

PlaceJson server_json(const Cluster& cluster, const ModelPlacement& placement, std::size_t server,
                      const std::vector<PlacedGpu>& gpus) {
  const ServerLoad load = placement.load(cluster, server);
  PlaceJson models = PlaceJson::array();
  for (const PlacedGpu& gpu : gpus) models.push_back(gpu.model);
  PlaceJson pairs = PlaceJson::array();
  for (const MemoryPair& pair : pairs_of(gpus)) {
    pairs.push_back({{"consumer", name_of(gpus, pair.consumer)},
                     {"producer", name_of(gpus, pair.producer)},
                     {"gb", gb(pair.lent_mb)}});
  }
  return {{"server", server},
          {"memory_gb", gb(load.spare_mb)},
          {"producers_less_consumers", load.producers},
          {"gpus", models},
          {"pairs", pairs}};
}

void print_json(const Cluster& cluster, const PlacerResult& result) {
  const auto servers = place_gpus(cluster, result.placement);
  PlaceJson list = PlaceJson::array();
  for (std::size_t s = 0; s < servers.size(); ++s) {
    list.push_back(server_json(cluster, result.placement, s, servers[s]));
  }
  const PlaceJson answer = {{"objective_gb", gb(result.objective_mb)},
                            {"bound_gb", result.bound_mb / 1000},
                            {"gap", result.gap()},
                            {"optimal", result.optimal},
                            {"placed_by", result.from_solver ? "cbc" : "greedy"},
                            {"seconds", result.seconds},
                            {"without_cbc", result.without_cbc},
                            {"servers", list}};
  fmt::print("{}\n", dump_json(answer));
}

void print_text(const Cluster& cluster, const PlacerResult& result) {
  const auto servers = place_gpus(cluster, result.placement);
  for (std::size_t s = 0; s < servers.size(); ++s) {
    const ServerLoad load = result.placement.load(cluster, s);
    fmt::print("server {}: {:+.1f} GB, {:+} producers\n", s, gb(load.spare_mb), load.producers);
    for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
      const std::int32_t count = result.placement.counts[s][k];
      if (count > 0) fmt::print("  {} x {}\n", count, cluster.kinds[k].name);
    }
    for (const MemoryPair& pair : pairs_of(servers[s])) {
      fmt::print("  {} lends {:.1f} GB to {}\n", name_of(servers[s], pair.producer),
                 gb(pair.lent_mb), name_of(servers[s], pair.consumer));
    }
  }
  fmt::print("objective {:.3f} GB, bound {:.3f} GB, gap {:.2f} %, placed by {}, {:.2f} s\n",
             gb(result.objective_mb), result.bound_mb / 1000, 100 * result.gap(),
             result.from_solver ? "cbc" : "greedy", result.seconds);
}

}  // namespace

CLI::App* add_place(CLI::App& root, PlaceArguments& arguments) {
  CLI::App* command = root.add_subcommand(
      "place", "Places models on servers, so that lenders of memory are beside borrowers");
  command->add_option("FILE", arguments.file, "the cluster and its models, as JSON")->required();
  command->add_option("--solver", arguments.solver,
                      "the CBC program; empty: only the greedy placement (default cbc)");
  command
      ->add_option("--time-limit", arguments.time_limit_s,
                   "seconds that the solver has, 0.1 to 3600 (default 4)")
      ->check(number_between(0.1, 3600));
  command->add_flag("--json", arguments.json, "one JSON object on stdout, nothing else");
  return command;
}

int run_place(const PlaceArguments& arguments) {
  const auto text = read_file(arguments.file, kMaxClusterFileBytes);
  if (!text) return report_error(text.error(), kExitError);
  const auto cluster = parse_cluster(*text, arguments.file);
  if (!cluster) return report_error(cluster.error(), kExitError);
  const SystemClock clock;
  const auto result = place_models(
      *cluster,
      {arguments.solver,
       std::chrono::duration_cast<Duration>(std::chrono::duration<double>(arguments.time_limit_s))},
      clock);
  if (!result) return report_error(result.error(), kExitError);
  if (!result->without_cbc.empty()) {
    log_warning(fmt::format(
        "the placement is greedy, without a solver's bound, because CBC did not run: {}; install "
        "Debian's coinor-cbc",
        result->without_cbc));
  }
  arguments.json ? print_json(*cluster, *result) : print_text(*cluster, *result);
  return kExitSuccess;
}

}  // namespace sluice
