#include "base/thread_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>

namespace sluice {
namespace {

std::vector<LogicalCpu> usable(const CpuTopology& topology, std::span<const int> allowed) {
  std::vector<LogicalCpu> cpus;
  for (const int id : allowed) {
    const auto found = std::ranges::find(topology.cpus, id, &LogicalCpu::id);
    cpus.push_back(found != topology.cpus.end() ? *found : LogicalCpu{.id = id, .core = id});
  }
  return cpus;
}

// The node of each core, nodes in order.
std::vector<int> nodes_of_cores(const std::vector<LogicalCpu>& cpus) {
  std::set<int> seen;
  std::vector<int> nodes;
  for (const LogicalCpu& cpu : cpus) {
    if (seen.insert(cpu.core).second) nodes.push_back(cpu.node);
  }
  std::ranges::sort(nodes);
  return nodes;
}

std::string plural(int n, std::string_view name) {
  return fmt::format("{} {}{}", n, name, n == 1 ? "" : "s");
}

void choose_number(std::optional<double> limit, int wanted, ThreadPlan& plan) {
  const std::string found =
      plan.cores == plan.cpus
          ? plural(plan.cpus, "CPU")
          : fmt::format("{} with {}", plural(plan.cores, "core"), plural(plan.cpus, "CPU"));
  if (wanted > 0) {
    plan.threads = wanted;
    plan.reason = fmt::format("as --threads says, on {}", found);
  } else if (limit && *limit < plan.cores) {
    // A part of a CPU more would end each period early for all threads.
    plan.threads = std::max(1, static_cast<int>(*limit));
    plan.reason = fmt::format("the control group allows {:.1f} CPUs, of {}", *limit, found);
  } else {
    plan.threads = plan.cores;
    plan.reason = fmt::format("one for each of {}", found);
  }
}

void choose_nodes(const std::vector<LogicalCpu>& cpus, ThreadPlan& plan) {
  const std::vector<int> nodes = nodes_of_cores(cpus);
  plan.nodes = nodes;
  plan.nodes.erase(std::ranges::unique(plan.nodes).begin(), plan.nodes.end());
  if (plan.nodes.size() < 2) return plan.nodes.clear();
  const int count = static_cast<int>(plan.nodes.size());
  plan.reason += fmt::format("; memory is spread over {} nodes", count);
  if (plan.threads < plan.cores) {
    plan.reason += ", threads are not bound, because some cores are left";
    return;
  }
  plan.reason += fmt::format(", threads are bound to the CPUs of their node");
  for (int thread = 0; thread < plan.threads; ++thread) {
    const auto at =
        static_cast<std::size_t>(thread) * nodes.size() / static_cast<std::size_t>(plan.threads);
    std::vector<int>& mask = plan.bound.emplace_back();
    for (const LogicalCpu& cpu : cpus) {
      if (cpu.node == nodes[at]) mask.push_back(cpu.id);
    }
  }
}

}  // namespace

ThreadPlan plan_threads(const CpuTopology& topology, std::span<const int> allowed,
                        std::optional<double> limit, int wanted) {
  const std::vector<LogicalCpu> cpus = usable(topology, allowed);
  ThreadPlan plan;
  plan.cpus = std::max(1, static_cast<int>(cpus.size()));
  plan.cores = std::max(1, static_cast<int>(nodes_of_cores(cpus).size()));
  choose_number(limit, wanted, plan);
  choose_nodes(cpus, plan);
  return plan;
}

}  // namespace sluice
