// The factory of device/cuda_device.h in builds with CUDA: the machine's own driver.
#include "device/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "device/cuda/cublas_lt.h"
#include "device/cuda/cuda_chunks.h"
#include "device/cuda/device_impl.h"
#include "device/cuda/driver.h"
#include "device/cuda/gpu.h"

namespace sluice {
namespace {

// "580.65.06", from the line that the driver writes about itself; else "of unknown version".
std::string driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    const bool number = std::all_of(word.begin(), word.end(),
                                    [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
    if (number && word.find('.') != std::string::npos) return word;
  }
  return "of unknown version";
}

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int index, const CudaOptions& options) {
  auto api = cuda::open_driver();
  if (!api) return with_context(fmt::format("cuda:{}", index), std::move(api).error());
  if (options.deterministic) return cuda::make_device(*api, index, options);
  auto library = cuda::open_cublas_lt();
  if (!library) {
    log_info(
        fmt::format("cuda:{}: no cuBLASLt here ({}); using built-in kernels for all matrix "
                    "products (slower)",
                    index, library.error().message));
  }
  return cuda::make_device(*api, index, options, library ? &*library : nullptr);
}

Result<std::unique_ptr<DeviceChunks>> make_cuda_chunks(int index, std::int64_t bytes) {
  auto api = cuda::open_driver();
  if (!api) return with_context(fmt::format("cuda:{}", index), std::move(api).error());
  return cuda::make_chunks(*api, index, bytes);
}

Result<CudaMachine> inspect_cuda() {
  auto driver = cuda::open_driver();
  if (!driver) return with_context("cuda", std::move(driver).error());
  const cuda::DriverApi& api = *driver;
  int version = 0;
  int devices = 0;
  RETURN_IF_ERROR(cuda::check(api, api.cuDriverGetVersion(&version), "cuda: driver version"));
  RETURN_IF_ERROR(cuda::check(api, api.cuDeviceGetCount(&devices), "cuda: number of devices"));
  CudaMachine machine;
  machine.driver =
      fmt::format("driver {}, CUDA {}", driver_release(), cuda::cuda_version_text(version));
  const auto library = cuda::open_cublas_lt();
  machine.library = library ? fmt::format("cuBLASLt ({})", cuda::library_path(*library))
                            : fmt::format("no cuBLASLt ({})", library.error().message);
  for (int i = 0; i < devices; ++i) {
    ASSIGN_OR_RETURN(const cuda::GpuInfo info, cuda::inspect_gpu(api, i));
    machine.devices.push_back(fmt::format("cuda:{} {}", i, cuda::describe(info)));
  }
  return machine;
}

}  // namespace sluice
