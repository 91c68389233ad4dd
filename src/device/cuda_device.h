// The CUDA device's factory. Where the build has no CUDA, the same functions are there and say so.
// Owner: apps. Threads: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

struct CudaOptions {
  // A row's result is bitwise the same whatever else is in the batch, as it always is on the CPU;
  // otherwise the number of rows a step has room for may change its last bits. docs/gpu.md says
  // what it costs.
  bool deterministic = false;
};

// The GPU with this index, as the driver counts. kUnsupported, with what to do, without CUDA in the
// build, without a driver, with one that is too old, with none or an unsuitable GPU;
// kInvalidArgument for an index beyond the last.
Result<std::unique_ptr<Device>> make_cuda_device(int index, const CudaOptions& options = {});

// What the machine has, for people: no context is made.
struct CudaMachine {
  std::string driver;                // "driver 580.65.06, CUDA 13.0"
  std::string library;               // "cuBLASLt", or why there is none
  std::vector<std::string> devices;  // "cuda:0 NVIDIA H200, capability 9.0, ..."
};
// Errors as above.
Result<CudaMachine> inspect_cuda();

}  // namespace sluice
