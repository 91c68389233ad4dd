// CpuTopology: the online CPUs of a machine, and which of them share a core or a memory node. And
// what of them this process may use. Values: plain. Threads: any; all is read anew by each call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// A hardware thread; Linux calls it a CPU.
struct LogicalCpu {
  int id = 0;
  int core = 0;  // the least id of the CPUs that share its core
  int node = 0;  // of memory
};

struct CpuTopology {
  std::vector<LogicalCpu> cpus;  // by id
};

// Reads sys/devices/system/{cpu,node} under `root` ("/" outside tests). A CPU whose files are
// missing or damaged counts as a core of its own, on node 0. Empty if no CPU is listed.
CpuTopology read_cpu_topology(const std::string& root);

// Bytes of the largest cache that one of the online CPUs uses, from sys/devices/system/cpu under
// `root`; 0 if no file says.
std::int64_t largest_cache_bytes(const std::string& root);

// The ids in a list of the kernel's, such as "0-3,8"; none if it is damaged or names an id of
// 65,536 or more.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

// The CPUs that the calling thread may run on: its affinity mask, which cpusets limit too. Empty if
// the system does not say.
std::vector<int> allowed_cpu_ids();

// From now on the calling thread runs on these CPUs only. kUnsupported if the system refuses.
Status bind_this_thread(std::span<const int> cpu_ids);

// The CPU time that the process's control groups allow, in CPUs: the least limit of v1 and v2, of
// every level. None without a limit. Reads proc/self/cgroup and sys/fs/cgroup under `root`.
std::optional<double> read_cpu_limit(const std::string& root);

}  // namespace sluice
