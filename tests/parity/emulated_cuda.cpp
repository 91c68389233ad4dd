#include "tests/parity/emulated_cuda.h"

#include "device/cuda/device_impl.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice::parity {
namespace {

Result<std::unique_ptr<Device>> make_emulated(int, bool deterministic) {
  static cuda::FakeDriver driver;
  driver.runs_kernels = true;
  driver.multiprocessors = 4;  // so that small shapes fill them
  driver.free_memory = std::size_t{2} << 30;
  driver.launches.clear();
  return cuda::make_device(cuda::FakeDriver::api(), 0, {.deterministic = deterministic});
}

}  // namespace

std::vector<DeviceCase> emulated_cuda_devices() {
  return {{"cuda_emulated", make_emulated, true, true}};
}

}  // namespace sluice::parity
