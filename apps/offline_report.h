// The output of `sluice bench offline`: the keys of `vllm bench throughput` and, for runs in
// batches, of `vllm bench latency`; then steps by kind, then the request figures of `bench serve`.
// Pure; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loadgen/offline_run.h"

namespace sluice {

struct OfflineReport {
  std::vector<std::pair<std::string, std::string>> facts;  // key, JSON value; they come first
  std::vector<double> percentiles;                         // of requests' latencies
  bool batches = false;                                    // latencies of batches are wanted
};

// One JSON object.
std::string offline_json(const OfflineResult& result, const OfflineReport& report);

// Text for the terminal.
std::string offline_text(const OfflineResult& result, const OfflineReport& report);

}  // namespace sluice
