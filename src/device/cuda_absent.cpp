#include <string>

#include "device/cuda_device.h"

namespace sluice {
namespace {

Error not_built() {
  return unsupported(
      "this build has no CUDA support; use --device cpu, or a build made where the CUDA toolkit "
      "(nvcc) is installed");
}

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int index, const CudaOptions&) {
  return with_context("cuda:" + std::to_string(index), not_built());
}

Result<std::unique_ptr<DeviceChunks>> make_cuda_chunks(int index, std::int64_t) {
  return with_context("cuda:" + std::to_string(index), not_built());
}

Result<CudaMachine> inspect_cuda() { return with_context("cuda", not_built()); }

}  // namespace sluice
