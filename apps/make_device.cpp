#include "apps/make_device.h"

#include <fmt/format.h>

#include <utility>

#include "base/cpu_topology.h"
#include "base/log.h"
#include "base/memory_policy.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda_device.h"

namespace sluice {

ThreadPlan planned_threads(std::int32_t wanted) {
  return plan_threads(read_cpu_topology("/"), allowed_cpu_ids(), read_cpu_limit("/"), wanted);
}

std::unique_ptr<ThreadPool> make_pool(const EngineOptions& options, const UrgentWork* urgent) {
  ThreadPlan plan = planned_threads(options.threads);
  // With one thread for each CPU there is nothing to say.
  if (options.threads == 0 && (plan.threads != plan.cpus || !plan.nodes.empty())) {
    log_info(fmt::format("{} threads: {}", plan.threads, plan.reason));
  }
  // Before the threads start, because they take the policy over.
  if (!plan.nodes.empty()) {
    const Status spread = spread_new_memory(plan.nodes);
    if (!spread) log_warning("memory is not spread over nodes: " + spread.error().message);
  }
  return std::make_unique<ThreadPool>(plan.threads, urgent, std::move(plan.bound));
}

Result<std::unique_ptr<Device>> make_device(const EngineOptions& options, ThreadPool& pool) {
  switch (options.device) {
    case DeviceKind::kCuda: {
      auto device =
          make_cuda_device(options.device_index, {.deterministic = options.deterministic});
      if (device) {
        log_warning((*device)->traits().name +
                    ": the CUDA backend is new and has not been verified on a GPU; compare its "
                    "results with --device cpu");
      }
      return device;
    }
    case DeviceKind::kCpu: break;
  }
  CpuDeviceOptions cpu;
  cpu.pool = &pool;
  if (!options.isa.empty()) {
    ASSIGN_OR_RETURN(const CpuIsa isa, parse_cpu_isa(options.isa));
    cpu.isa = isa;
  }
  return make_cpu_device(cpu);
}

}  // namespace sluice
