// CudaDevice: the Device of one GPU. make_cuda_device (device/cuda_device.h) passes the real
// driver's function table, tests pass a fake one.
// Owner: the caller. Threads: as device.h.
#pragma once

#include <memory>

#include "base/result.h"
#include "device/cuda/driver.h"
#include "device/cuda_device.h"
#include "device/device.h"

namespace sluice::cuda {

struct CublasLtApi;  // cublas_lt.h

// `library`: used for matrix products of many rows, unless they must be deterministic; null: none.
Result<std::unique_ptr<Device>> make_device(const DriverApi& api, int index,
                                            const CudaOptions& options = {},
                                            const CublasLtApi* library = nullptr);

}  // namespace sluice::cuda
