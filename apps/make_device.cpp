#include "apps/make_device.h"

#include "device/cpu/cpu_device.h"
#include "device/cuda_device.h"

namespace sluice {

std::unique_ptr<ThreadPool> make_pool(const EngineOptions& options) {
  return std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cpus());
}

Result<std::unique_ptr<Device>> make_device(const EngineOptions& options, ThreadPool& pool) {
  switch (options.device) {
    case DeviceKind::kCuda: return make_cuda_device(options.device_index);
    case DeviceKind::kCpu: break;
  }
  CpuDeviceOptions cpu;
  cpu.pool = &pool;
  return make_cpu_device(cpu);
}

}  // namespace sluice
