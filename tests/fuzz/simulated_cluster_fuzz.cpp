// Cluster files. An accepted one has models that fit where they compute and no negative times.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "function_sim/cluster_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto cluster =
      parse_cluster(std::string_view(reinterpret_cast<const char*>(data), size), "c.toml");
  if (!cluster) {
    CHECK(cluster.error().message.starts_with("c.toml:"));
    return 0;
  }
  const bool on_cores = cluster->cores > 0;
  CHECK(on_cores ? cluster->devices == 0 : cluster->devices >= 1);
  const std::int64_t room = on_cores ? cluster->host_bytes : cluster->device_bytes;
  CHECK(room > 0);
  for (const RestTime& rest : cluster->rests) {
    CHECK(on_cores && rest.seconds >= 0 && rest.factor >= 0 && rest.http_s >= 0);
  }
  for (const ModelTimes& model : cluster->models) {
    CHECK(model.weights.host.bytes >= 0 && model.weights.host.bytes <= room);
    CHECK(model.prefill.seconds(100) >= 0 && model.decode_step_s >= 0);
  }
  return 0;
}
