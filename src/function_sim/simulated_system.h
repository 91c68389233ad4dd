// SystemSpec: a system that the simulator of functions can be: Sluice, a Sluice that lacks a part,
// or another system's policies on the same machine. Values: plain. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serverless/artifact_catalog.h"
#include "serverless/functions_file.h"

namespace sluice {

struct SystemSpec {
  std::string name;
  bool shares_backbones = true;  // false: each function has a copy of its own
  bool always_on = false;        // all functions live from the start, and are never ended
  bool merges = false;           // one process for all functions of a backbone; always on
  bool refuses = true;           // calls that would miss their SLO
  bool keeps = true;             // ended instances' artifacts, while there is room
  std::vector<ArtifactKind> preloads;
  double disk_speed = 1;  // of loads of weights from disk, over that of the cluster file
  Batching batching = Batching::kWorkConserving;
  FixedBatch fixed;  // kFixed
};

// "sluice", its ablations "sluice-no-sharing", "sluice-no-preload", "sluice-no-offload",
// "sluice-fill-or-expire", "sluice-batch-1", "sluice-batch-10", "sluice-batch-20"; "vllm", "dlora",
// "instainfer", "serverlessllm".
Result<SystemSpec> system_named(std::string_view name);
std::vector<std::string> system_names();

}  // namespace sluice
