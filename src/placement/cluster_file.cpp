#include "placement/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/json_depth.h"

namespace sluice {
namespace {

constexpr double kMaxGb = 1e6;
constexpr int kMaxDepth = 8;

// Refuses members that the format does not have, so that a misspelt one is noticed.
Status only_members(const nlohmann::json& object, const std::string& where,
                    const std::set<std::string>& known) {
  for (const auto& [name, value] : object.items()) {
    if (known.contains(name)) continue;
    return invalid_argument(fmt::format("{} has no field '{}'; remove it", where, name));
  }
  return {};
}

Result<std::int32_t> whole(const nlohmann::json& object, const std::string& where, const char* name,
                           std::int32_t most, std::optional<std::int32_t> absent = {}) {
  const auto found = object.find(name);
  if (found == object.end() && absent) return *absent;
  if (found != object.end() && found->is_number_integer()) {
    const auto value = found->is_number_unsigned() &&
                               found->get<std::uint64_t>() > static_cast<std::uint64_t>(most)
                           ? std::int64_t{0}
                           : found->get<std::int64_t>();
    if (value >= 1 && value <= most) return static_cast<std::int32_t>(value);
  }
  return invalid_argument(
      fmt::format("{}: {} must be a whole number from 1 to {}", where, name, most));
}

// Gigabytes, kept to the megabyte.
Result<std::int64_t> gigabytes(const nlohmann::json& object, const std::string& where,
                               const char* name, double low) {
  const auto found = object.find(name);
  if (found != object.end() && found->is_number()) {
    const auto value = found->get<double>();
    if (std::isfinite(value) && value >= low && value <= kMaxGb) return std::llround(value * 1000);
  }
  return invalid_argument(
      fmt::format("{}: {} must be a number of GB from {} to {}", where, name, low, kMaxGb));
}

Result<ModelKind> parse_kind(const nlohmann::json& item, const std::string& where,
                             const Cluster& cluster) {
  if (!item.is_object()) return invalid_argument(where + " must be an object");
  RETURN_IF_ERROR(only_members(item, where, {"name", "count", "tensor_parallel", "memory_gb"}));
  ModelKind kind;
  const auto name = item.find("name");
  if (name == item.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return invalid_argument(where + ": name must be a text that is not empty");
  }
  kind.name = name->get<std::string>();
  const std::int32_t gpus = cluster.servers * cluster.gpus_per_server;
  ASSIGN_OR_RETURN(kind.count, whole(item, where, "count", gpus, 1));
  ASSIGN_OR_RETURN(kind.gpus, whole(item, where, "tensor_parallel", cluster.gpus_per_server, 1));
  ASSIGN_OR_RETURN(kind.spare_mb, gigabytes(item, where, "memory_gb", -kMaxGb));
  if (kind.spare_mb > cluster.gpu_memory_mb) {
    return invalid_argument(where + ": memory_gb is above gpu_memory_gb; no GPU can spare that");
  }
  return kind;
}

Status parse_kinds(const nlohmann::json& root, const std::string& file, Cluster& cluster) {
  const auto models = root.find("models");
  if (models == root.end() || !models->is_array() || models->empty() ||
      models->size() > static_cast<std::size_t>(Cluster::kMaxKinds)) {
    return invalid_argument(
        fmt::format("{}: models must be a list of 1 to {} kinds", file, Cluster::kMaxKinds));
  }
  std::int64_t shards = 0;
  std::set<std::string> names;
  for (const nlohmann::json& item : *models) {
    const std::string where = fmt::format("{}: models[{}]", file, cluster.kinds.size());
    ASSIGN_OR_RETURN(ModelKind kind, parse_kind(item, where, cluster));
    if (!names.insert(kind.name).second) {
      return invalid_argument(
          fmt::format("{}: the name '{}' appears twice; add the counts", where, kind.name));
    }
    shards += std::int64_t{kind.count} * kind.gpus;
    cluster.kinds.push_back(std::move(kind));
  }
  const std::int64_t gpus = std::int64_t{cluster.servers} * cluster.gpus_per_server;
  if (shards <= gpus) return {};
  return invalid_argument(fmt::format(
      "{}: the models need {} GPUs, {} servers of {} have {}; lower a count or add servers", file,
      shards, cluster.servers, cluster.gpus_per_server, gpus));
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view text, const std::string& file) {
  if (json_deeper_than(text, kMaxDepth)) return invalid_argument(file + ": nested too deeply");
  const nlohmann::json root = parse_json(text);
  if (root.is_discarded()) {
    return invalid_argument(fmt::format("{}: not JSON: {}", file, json_fault(text)));
  }
  if (!root.is_object()) return invalid_argument(file + ": must be a JSON object");
  RETURN_IF_ERROR(
      only_members(root, file, {"servers", "gpus_per_server", "gpu_memory_gb", "models"}));
  Cluster cluster;
  ASSIGN_OR_RETURN(cluster.servers, whole(root, file, "servers", Cluster::kMaxServers));
  ASSIGN_OR_RETURN(cluster.gpus_per_server,
                   whole(root, file, "gpus_per_server", Cluster::kMaxGpusPerServer));
  ASSIGN_OR_RETURN(cluster.gpu_memory_mb, gigabytes(root, file, "gpu_memory_gb", 0.001));
  RETURN_IF_ERROR(parse_kinds(root, file, cluster));
  return cluster;
}

}  // namespace sluice
