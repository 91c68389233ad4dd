// The cluster file of the simulator of functions: the machine, and how long its artifacts take to
// load and its models to compute, as TOML. docs/serverless-simulation.md describes every key;
// examples/cluster-l40s.toml has values with their sources.
// Pure; any thread. Errors name path, line, column and key. Bytes, seconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serverless/artifact_catalog.h"
#include "serverless/batching.h"

namespace sluice {

// A model, named as a backbone of the functions file.
struct ModelTimes {
  std::string backbone;
  BackboneCosts weights;        // pages and kernels are part of an instance
  ArtifactCost instance;        // context, kernels
  ArtifactCost adapter_host;    // read from disk
  ArtifactCost adapter_device;  // and copied to a device
  PrefillTime prefill;
  double decode_step_s = 0;      // of a step
  double decode_sequence_s = 0;  // of each sequence in it
  // Machines of cores only. A step with a part of a prompt takes decode_step_s, prefill.token_s for
  // each token, and this for each pair of positions that attention computes.
  double prefill_pair_s = 0;
  // More for each token of a prompt in the first step of a turn: after a rest of the cores, and
  // after another function.
  double wake_token_s = 0;
  double handover_token_s = 0;
  // A step with prompts and decodes is planned shorter than its limit by this, at least 1. An
  // engine learns it from the noise of its steps.
  double step_margin = 1.25;
  // KV: bytes of a token, and the most bytes of a process. Whole blocks stay in memory when their
  // call has ended.
  std::int64_t token_bytes = 0;
  std::int64_t kv_bytes = 0;
};

// After the cores have been idle for `seconds`, a turn takes `factor` times wake_s and wake_token_s
// more, and a call takes `http_s` outside of turns.
struct RestTime {
  double seconds = 0;
  double factor = 1;
  double http_s = 0;
};

// Linear between two entries, constant beyond the first and the last one. `none`: without entries.
double after_rest(std::span<const RestTime> rests, double seconds, double RestTime::* value,
                  double none);

struct ClusterSpec {
  std::int32_t cores = 0;  // of a machine without devices, whose functions take turns at them
  std::int32_t devices = 1;
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = 0;
  std::int32_t max_sequences = 32;  // that decode at a time: on a device, or in a process on cores
  double wake_s = 0;                // of a turn when the cores were idle
  std::vector<RestTime> rests;      // by seconds, each above the one before; none: the factor is 1
  double handover_s = 0;            // of a turn when another function computed before
  double http_s = 0;                // of a call, outside of turns
  double call_cpu_s = 0;            // of a core, for a call, outside of functions
  ArtifactCost worker;              // container and libraries
  std::vector<ModelTimes> models;
};

Result<ClusterSpec> parse_cluster(std::string_view text, std::string_view path);

}  // namespace sluice
