#include "placement/placer_program.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

std::string count_name(std::size_t server, std::size_t kind) {
  return fmt::format("n{}_{}", kind, server);
}

std::string server_rows(const Cluster& cluster, std::size_t server, std::int64_t unit) {
  CbcSum room;
  CbcSum spare;
  CbcSum producers;
  for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
    const ModelKind& kind = cluster.kinds[k];
    const std::string name = count_name(server, k);
    room.add(kind.gpus, name);
    spare.add(kind.gpus * kind.spare_mb / unit, name);
    producers.add(kind.is_producer() ? kind.gpus : -kind.gpus, name);
  }
  spare.add(-1, "zr");
  producers.add(-1, "zn");
  return room.line(fmt::format("room{}", server), "<=", cluster.gpus_per_server) +
         spare.line(fmt::format("spare{}", server), "<=", 0) +
         producers.line(fmt::format("producers{}", server), "<=", 0);
}

std::optional<std::size_t> index_of(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status read_count(const Cluster& cluster, const std::string& name, double value,
                  ModelPlacement& placement) {
  if (name == "zr" || name == "zn") return {};
  const std::size_t bar = name.find('_');
  std::optional<std::size_t> kind;
  std::optional<std::size_t> server;
  if (name.starts_with('n') && bar != std::string::npos) {
    kind = index_of(std::string_view(name).substr(1, bar - 1));
    server = index_of(std::string_view(name).substr(bar + 1));
  }
  if (!kind || !server || *kind >= cluster.kinds.size() || *server >= placement.counts.size()) {
    return internal_error(fmt::format("CBC's solution names '{}', which is no variable", name));
  }
  ASSIGN_OR_RETURN(placement.counts[*server][*kind],
                   cbc_count(name, value, cluster.kinds[*kind].count));
  return {};
}

}  // namespace

std::string placer_program(const Cluster& cluster) {
  const std::int64_t unit = spare_unit_mb(cluster);
  const auto servers = static_cast<std::size_t>(cluster.servers);
  CbcSum objective;
  objective.add(unit, "zr");
  objective.add(cluster.gpu_memory_mb, "zn");
  std::string rows = "Subject To\n";
  std::string integers = "General\n zr zn\n";
  for (std::size_t k = 0; k < cluster.kinds.size(); ++k) {
    CbcSum all;
    for (std::size_t s = 0; s < servers; ++s) {
      all.add(1, count_name(s, k));
      integers += " " + count_name(s, k) + (s % 8 == 7 ? "\n" : "");
    }
    integers += "\n";
    rows += all.line(fmt::format("all{}", k), "=", cluster.kinds[k].count);
  }
  for (std::size_t s = 0; s < servers; ++s) rows += server_rows(cluster, s, unit);
  const PlacementLimits means = mean_limits(cluster);
  const std::string bounds = fmt::format("Bounds\n {} <= zr <= 1e9\n {} <= zn <= 1e9\n",
                                         means.spare_mb / unit, means.producers);
  return fmt::format("Minimize\n obj:{}\n{}{}{}End\n", objective.text(), rows, bounds, integers);
}

Result<std::optional<ModelPlacement>> placement_of(const Cluster& cluster,
                                                   const CbcSolution& solution) {
  if (!solution.holds) return std::optional<ModelPlacement>();
  ModelPlacement placement;
  placement.counts.assign(static_cast<std::size_t>(cluster.servers),
                          std::vector<std::int32_t>(cluster.kinds.size()));
  for (const auto& [name, value] : solution.values) {
    RETURN_IF_ERROR(read_count(cluster, name, value, placement));
  }
  if (check_placement(cluster, placement)) return std::optional(std::move(placement));
  if (solution.optimal) return internal_error("CBC's optimal solution breaks a constraint");
  return std::optional<ModelPlacement>();
}

}  // namespace sluice
