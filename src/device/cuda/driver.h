// The CUDA driver as a table of functions. It is opened with dlopen at first use: the binary starts
// on machines without a driver, and tests replace it with a fake. Errors carry the driver's name
// for them. Fields have the names of cuda.h. It defines some names as versioned ones (cuMemGetInfo
// is cuMemGetInfo_v2); the field and the symbol then have the versioned name too.
// Values: plain, immutable after loading; any thread.
#pragma once

#include <cuda.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "device/cuda/symbol_lookup.h"

namespace sluice::cuda {

// The device code of this build needs CUDA 13.0, which NVIDIA driver 580 was the first to run.
inline constexpr int kNeededCudaVersion = 13000;
inline constexpr std::string_view kNeededDriver = "580";

// clang-format off
#define SLUICE_CUDA_FUNCTIONS(F)                                                          \
  F(cuInit) F(cuDriverGetVersion) F(cuGetErrorName) F(cuGetErrorString)                   \
  F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName) F(cuDeviceGetAttribute)           \
  F(cuDeviceTotalMem) F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease)            \
  F(cuCtxSetCurrent) F(cuMemGetInfo)                                                      \
  F(cuMemGetAllocationGranularity) F(cuMemAddressReserve) F(cuMemAddressFree)             \
  F(cuMemCreate) F(cuMemRelease) F(cuMemMap) F(cuMemUnmap) F(cuMemSetAccess)              \
  F(cuMemExportToShareableHandle) F(cuMemImportFromShareableHandle)                       \
  F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoHAsync)            \
  F(cuMemcpyDtoDAsync) F(cuMemsetD8Async)                                                 \
  F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamSynchronize) F(cuStreamWaitEvent)        \
  F(cuStreamBeginCapture) F(cuStreamEndCapture)                                           \
  F(cuEventCreate) F(cuEventDestroy) F(cuEventRecord) F(cuEventSynchronize)               \
  F(cuEventQuery) F(cuEventElapsedTime)                                                   \
  F(cuModuleLoadData) F(cuModuleUnload) F(cuModuleGetFunction)                            \
  F(cuFuncLoad) F(cuFuncGetParamInfo) F(cuFuncSetAttribute) F(cuLaunchKernel)             \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                          \
  F(cuGraphInstantiate) F(cuGraphUpload) F(cuGraphLaunch)                                 \
  F(cuGraphExecDestroy) F(cuGraphDestroy)
// clang-format on

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's
struct DriverApi {
#define SLUICE_CUDA_FIELD(name) decltype(&::name) name = nullptr;
  SLUICE_CUDA_FUNCTIONS(SLUICE_CUDA_FIELD)
#undef SLUICE_CUDA_FIELD
};
// NOLINTEND(readability-identifier-naming)

// Fills the table, initializes the driver and checks its version. kUnsupported, with what to do:
// a function is missing, the driver is too old, or it finds no GPU.
Result<DriverApi> load_driver(SymbolLookup lookup, void* library);

// The same from libcuda.so.1, which stays open until the process ends. kUnsupported without it.
Result<DriverApi> open_driver();

// "12.4" for 12040.
std::string cuda_version_text(int version);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; the number of an error that the driver does not know.
std::string error_text(const DriverApi& api, CUresult result);

// Whether the error is a fault, after which every later call of this process on this device fails:
// a kernel's bad address or trap, a memory error of the hardware, a context that was torn down.
bool is_sticky(CUresult result);

// "what: CUDA_ERROR_... (...)" with the code that fits: kResourceExhausted for memory, kUnavailable
// for faults and for a device that other processes hold, kUnsupported for something that this
// device or driver cannot do, kInvalidArgument for a device that does not exist, else kInternal.
Error driver_error(const DriverApi& api, CUresult result, std::string_view what);

inline Status check(const DriverApi& api, CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return {};
  return driver_error(api, result, what);
}

}  // namespace sluice::cuda
