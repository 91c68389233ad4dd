#include "tests/parity/emulated_cuda.h"

namespace sluice::parity {

std::vector<DeviceCase> emulated_cuda_devices() { return {}; }

}  // namespace sluice::parity
