#include "apps/make_device.h"

#include "base/log.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda_device.h"

namespace sluice {

std::unique_ptr<ThreadPool> make_pool(const EngineOptions& options, const UrgentWork* urgent) {
  const int threads = options.threads > 0 ? options.threads : available_cpus();
  return std::make_unique<ThreadPool>(threads, urgent);
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
