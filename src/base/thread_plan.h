// ThreadPlan: how many threads compute, and where. A pure function of what the machine has and of
// what this process may use; apps read those and make the pool.
//
// One thread for each core: a core's vector and tile units, its caches and its path to memory are
// full with one thread, and a second one only shares them. No thread is bound to one CPU or core:
// two servers on a machine would bind to the same ones, and one of them would wait while other
// cores were idle. The system puts threads on idle cores by itself. Where the CPUs lie on several
// memory nodes, and all their cores compute, each thread is bound to the CPUs of one node, so that
// every node's path to memory is used. Values: plain. Threads: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_topology.h"

namespace sluice {

struct ThreadPlan {
  int threads = 1;
  int cpus = 1;   // that the process may use
  int cores = 1;  // that these CPUs belong to
  // The CPUs of each thread; empty: the system chooses.
  std::vector<std::vector<int>> bound;
  // Memory is spread over these nodes, page by page, because all threads read all weights; empty:
  // the system chooses.
  std::vector<int> nodes;
  std::string reason;  // of the number and the places, for people
};

// `allowed`: as allowed_cpu_ids(); ids that the topology does not list count as cores of node 0.
// `limit`: as read_cpu_limit(). `wanted`: the user's number; 0: auto.
ThreadPlan plan_threads(const CpuTopology& topology, std::span<const int> allowed,
                        std::optional<double> limit, int wanted);

}  // namespace sluice
