// The CUDA device's factory. In a build without CUDA the same functions return kUnsupported.
// Owner: apps. Threads: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/device_chunks.h"

namespace sluice {

struct CudaOptions {
  // A row's result does not depend on the other rows of the batch, as on the CPU. Otherwise the
  // step's capacity may change its last bits. Costs speed: docs/gpu.md.
  bool deterministic = false;
};

// Opens the GPU with this index, in the driver's order. kUnsupported, with what to do: the build
// has no CUDA, there is no driver, the driver is too old, or there is no suitable GPU.
// kInvalidArgument for an index beyond the last GPU.
Result<std::unique_ptr<Device>> make_cuda_device(int index, const CudaOptions& options = {});

// Places for `bytes` of this GPU's memory that processes share. Errors as above; kInvalidArgument
// also if `bytes` is less than a chunk.
Result<std::unique_ptr<DeviceChunks>> make_cuda_chunks(int index, std::int64_t bytes);

// Texts about the machine's driver, library and GPUs. No context is made.
struct CudaMachine {
  std::string driver;                // "driver 580.65.06, CUDA 13.0"
  std::string library;               // "cuBLASLt (PATH)", or why there is none
  std::vector<std::string> devices;  // "cuda:0 NVIDIA H200, capability 9.0, ..."
};
// Errors as above.
Result<CudaMachine> inspect_cuda();

}  // namespace sluice
