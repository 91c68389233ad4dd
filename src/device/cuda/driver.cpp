#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace sluice::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

#define SLUICE_CUDA_TEXT_OF(name) #name
// One more expansion, so that versioned names are looked up.
#define SLUICE_CUDA_TEXT(name) SLUICE_CUDA_TEXT_OF(name)

Error too_old(std::string_view found) {
  return unsupported(
      fmt::format("the NVIDIA driver is too old: {}; install driver {} or later, or use "
                  "--device cpu",
                  found, kNeededDriver));
}

// The first of our functions that the driver lacks; null when it has all.
const char* fill(DriverApi& api, SymbolLookup lookup, void* library) {
  const char* missing = nullptr;
#define SLUICE_CUDA_FIND(name)                                                       \
  if (!find_symbol(api.name, lookup, library, SLUICE_CUDA_TEXT(name)) && !missing) { \
    missing = SLUICE_CUDA_TEXT(name);                                                \
  }
  SLUICE_CUDA_FUNCTIONS(SLUICE_CUDA_FIND)
#undef SLUICE_CUDA_FIND
  return missing;
}

Error no_gpu(const DriverApi& api, CUresult result) {
  return unsupported(
      fmt::format("the NVIDIA driver finds no GPU: {}; check nvidia-smi, and that "
                  "CUDA_VISIBLE_DEVICES hides no GPU; or use --device cpu",
                  error_text(api, result)));
}

}  // namespace

Result<DriverApi> load_driver(SymbolLookup lookup, void* library) {
  DriverApi api;
  const char* missing = fill(api, lookup, library);
  if (api.cuInit == nullptr || api.cuDriverGetVersion == nullptr) {
    return unsupported(
        fmt::format("{} lacks {}: it is not NVIDIA's driver; use --device cpu", kLibrary, missing));
  }
  int version = 0;
  if (api.cuDriverGetVersion(&version) != CUDA_SUCCESS) version = 0;
  if (version < kNeededCudaVersion) {
    return too_old(fmt::format("it runs CUDA up to {}, and this build needs {}",
                               cuda_version_text(version), cuda_version_text(kNeededCudaVersion)));
  }
  if (missing != nullptr) return too_old(fmt::format("it has no {}", missing));
  if (const CUresult result = api.cuInit(0); result != CUDA_SUCCESS) return no_gpu(api, result);
  int devices = 0;
  if (const CUresult result = api.cuDeviceGetCount(&devices); result != CUDA_SUCCESS) {
    return no_gpu(api, result);
  }
  if (devices == 0) return no_gpu(api, CUDA_ERROR_NO_DEVICE);
  return api;
}

Result<DriverApi> open_driver() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return unsupported(
        fmt::format("no NVIDIA driver here ({}); install driver {} or later, or use "
                    "--device cpu",
                    reason == nullptr ? kLibrary : reason, kNeededDriver));
  }
  return load_driver([](void* from, const char* symbol) { return dlsym(from, symbol); }, library);
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string error_text(const DriverApi& api, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return fmt::format("driver error {}", static_cast<int>(result));
  }
  if (api.cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN: return true;
    default: return false;
  }
}

Error driver_error(const DriverApi& api, CUresult result, std::string_view what) {
  std::string message = fmt::format("{}: {}", what, error_text(api, result));
  if (is_sticky(result)) return unavailable(std::move(message));
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return resource_exhausted(std::move(message));
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_NOT_READY: return unavailable(std::move(message));
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE: return invalid_argument(std::move(message));
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED: return unsupported(std::move(message));
    default: return internal_error(std::move(message));
  }
}

}  // namespace sluice::cuda
