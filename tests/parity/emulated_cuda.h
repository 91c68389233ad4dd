// The CUDA backend on machines without a GPU: its own kernels compiled for the host, under a driver
// that is a fake. None in builds without CUDA.
// Threads: the test's.
#pragma once

#include <vector>

#include "tests/parity/support.h"

namespace sluice::parity {

std::vector<DeviceCase> emulated_cuda_devices();

}  // namespace sluice::parity
