#include <string>

#include "device/cuda_device.h"

namespace sluice {

Result<std::unique_ptr<Device>> make_cuda_device(int index) {
  return unsupported("cuda:" + std::to_string(index) +
                     ": this build has no CUDA support; use --device cpu, or a build made where "
                     "the CUDA toolkit (nvcc) is installed");
}

}  // namespace sluice
