#include "function_sim/cluster_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "serverless/table_reader.h"
#include "serverless/toml_document.h"

namespace sluice {
namespace {

constexpr std::int64_t kMostDevices = 1024;
constexpr std::int64_t kMostCores = 4096;
constexpr double kMostMargin = 3;  // a step is then as long as its decodes alone
constexpr double kMostFactor = 1e6;
constexpr double kMostSeconds = 1e6;

ArtifactCost read_cost(TableReader& reader, std::string_view bytes, std::string_view seconds) {
  return {reader.memory_size(bytes).value_or(0),
          reader.non_negative(seconds, kMostSeconds).value_or(0)};
}

Status read_machine(TableReader& root, std::string_view path, ClusterSpec& cluster) {
  const TomlValue* table = root.table("machine");
  if (table == nullptr) return root.error_at({}, "machine", "is missing");
  TableReader reader(*table, "machine", path);
  const auto devices = reader.integer("devices", 1, kMostDevices);
  const auto device_bytes = reader.memory_size("device_memory");
  const auto cores = reader.integer("cores", 1, kMostCores);
  cluster.cores = static_cast<std::int32_t>(cores.value_or(0));
  cluster.devices = static_cast<std::int32_t>(devices.value_or(cores ? 0 : 1));
  cluster.device_bytes = device_bytes.value_or(0);
  cluster.host_bytes = reader.memory_size("host_memory").value_or(0);
  cluster.max_sequences =
      static_cast<std::int32_t>(reader.integer("max_sequences", 1, 1 << 16).value_or(32));
  const auto of_cores = [&](std::string_view key) {
    const auto seconds = reader.non_negative(key, kMostSeconds);
    if (!cores && seconds) reader.fail(key, "is of a machine of cores");
    return seconds.value_or(0);
  };
  cluster.wake_s = of_cores("wake_s");
  cluster.handover_s = of_cores("handover_s");
  cluster.call_cpu_s = of_cores("call_cpu_s");
  cluster.http_s = reader.non_negative("http_s", kMostSeconds).value_or(0);
  cluster.worker = read_cost(reader, "worker_memory", "worker_s");
  if (cores && (devices || device_bytes)) {
    reader.fail("cores", "is of a machine without devices: leave devices and device_memory out");
  } else if (cores && cluster.host_bytes == 0) {
    reader.fail("host_memory", "must be above 0");
  } else if (!cores && cluster.device_bytes == 0) {
    reader.fail("device_memory", "must be above 0");
  }
  return reader.finish();
}

Status read_rest(const TomlValue& table, std::string_view path, ClusterSpec& cluster) {
  TableReader reader(table, "rest", path);
  const auto seconds = reader.non_negative("seconds", kMostSeconds);
  const auto factor = reader.non_negative("factor", kMostFactor);
  const auto http = reader.non_negative("http_s", kMostSeconds);
  if (cluster.cores == 0) {
    reader.fail("seconds", "is of a machine of cores");
  } else if (!seconds) {
    reader.fail("seconds", "is missing");
  } else if (!factor) {
    reader.fail("factor", "is missing");
  } else if (!cluster.rests.empty() && *seconds <= cluster.rests.back().seconds) {
    reader.fail("seconds", "must be above those of the rest before it");
  }
  cluster.rests.push_back({seconds.value_or(0), factor.value_or(1), http.value_or(cluster.http_s)});
  return reader.finish();
}

Status read_model(const TomlValue& table, std::string_view path, ClusterSpec& cluster) {
  TableReader reader(table, "model", path);
  ModelTimes model;
  model.backbone = reader.text("backbone");
  model.weights.host = read_cost(reader, "memory", "disk_s");
  model.weights.device = {model.weights.host.bytes,
                          reader.non_negative("copy_s", kMostSeconds).value_or(0)};
  model.instance = read_cost(reader, "instance_memory", "kernels_s");
  model.adapter_host = read_cost(reader, "adapter_memory", "adapter_disk_s");
  model.adapter_device = {model.adapter_host.bytes,
                          reader.non_negative("adapter_copy_s", kMostSeconds).value_or(0)};
  model.prefill.step_s = reader.non_negative("prefill_step_s", kMostSeconds).value_or(0);
  model.prefill.token_s = reader.non_negative("prefill_token_s", kMostSeconds).value_or(0);
  model.decode_step_s = reader.non_negative("decode_step_s", kMostSeconds).value_or(0);
  model.decode_sequence_s = reader.non_negative("decode_sequence_s", kMostSeconds).value_or(0);
  const auto pair = reader.non_negative("prefill_pair_s", kMostSeconds);
  const auto wake_token = reader.non_negative("wake_token_s", kMostSeconds);
  const auto handover_token = reader.non_negative("handover_token_s", kMostSeconds);
  const auto margin = reader.non_negative("step_margin", kMostMargin);
  const auto token_bytes = reader.memory_size("token_memory");
  const auto kv_bytes = reader.memory_size("kv_memory");
  model.prefill_pair_s = pair.value_or(0);
  model.wake_token_s = wake_token.value_or(0);
  model.handover_token_s = handover_token.value_or(0);
  if (margin && *margin < 1) reader.fail("step_margin", "must be at least 1");
  model.step_margin = margin.value_or(model.step_margin);
  model.token_bytes = token_bytes.value_or(0);
  model.kv_bytes = kv_bytes.value_or(0);
  if (cluster.cores > 0) {
    if (model.prefill.step_s > 0) {
      reader.fail("prefill_step_s", "is of devices: each step on cores takes decode_step_s");
    }
    model.prefill.step_s = model.decode_step_s;
  } else if (pair || wake_token || handover_token || margin || token_bytes || kv_bytes) {
    reader.fail("backbone",
                "has prefill_pair_s, wake_token_s, handover_token_s, step_margin, token_memory or "
                "kv_memory: these need cores");
  }
  for (const ModelTimes& other : cluster.models) {
    if (other.backbone == model.backbone) reader.fail("backbone", "is there twice");
  }
  if (model.weights.host.bytes > (cluster.cores > 0 ? cluster.host_bytes : cluster.device_bytes)) {
    reader.fail("memory",
                cluster.cores > 0 ? "is more than host_memory" : "is more than device_memory");
  }
  cluster.models.push_back(std::move(model));
  return reader.finish();
}

}  // namespace

double after_rest(std::span<const RestTime> rests, double seconds, double RestTime::* value,
                  double none) {
  if (rests.empty()) return none;
  const auto next = std::ranges::upper_bound(rests, seconds, {}, &RestTime::seconds);
  if (next == rests.begin()) return (*next).*value;
  if (next == rests.end()) return rests.back().*value;
  const RestTime& before = *(next - 1);
  const double part = (seconds - before.seconds) / (next->seconds - before.seconds);
  return before.*value + part * ((*next).*value - before.*value);
}

Result<ClusterSpec> parse_cluster(std::string_view text, std::string_view path) {
  ASSIGN_OR_RETURN(const TomlValue document, parse_toml(text, path));
  TableReader root(document, "", path);
  ClusterSpec cluster;
  RETURN_IF_ERROR(read_machine(root, path, cluster));
  for (const TomlValue* table : root.tables("rest")) {
    RETURN_IF_ERROR(read_rest(*table, path, cluster));
  }
  for (const TomlValue* table : root.tables("model")) {
    RETURN_IF_ERROR(read_model(*table, path, cluster));
  }
  RETURN_IF_ERROR(root.finish());
  return cluster;
}

}  // namespace sluice
