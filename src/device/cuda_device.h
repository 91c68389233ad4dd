// The CUDA device's factory. Where the build has no CUDA, the same function is there and says so.
// Owner: apps. Threads: any.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

// The GPU with this index, as the driver counts. kUnsupported without CUDA in the build.
Result<std::unique_ptr<Device>> make_cuda_device(int index);

}  // namespace sluice
