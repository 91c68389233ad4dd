#include "device/cuda/kernel_set.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/kernels/attention_work.h"
#include "device/cuda/kernels/matmul_tiles.h"

// The device code that the build embeds (cmake/cuda.cmake).
// NOLINTBEGIN(readability-identifier-naming): symbols of the linker
extern "C" {
#define SLUICE_DECLARE_CODE(file)                     \
  extern const std::byte sluice_device_code_##file[]; \
  extern const std::byte sluice_device_code_##file##_end[];
SLUICE_DEVICE_CODES(SLUICE_DECLARE_CODE)
#undef SLUICE_DECLARE_CODE
}
// NOLINTEND(readability-identifier-naming)

namespace sluice::cuda {
namespace {

constexpr int kSharedWithoutAsking = 48 << 10;

// Index into device_codes(), by file.
namespace code_index {
enum CodeIndex : std::size_t {
// NOLINTBEGIN(readability-identifier-naming): the names of the files.
#define SLUICE_CODE_INDEX(file) file,
  SLUICE_DEVICE_CODES(SLUICE_CODE_INDEX)
#undef SLUICE_CODE_INDEX
  // NOLINTEND(readability-identifier-naming)
};
}  // namespace code_index

constexpr std::array<KernelInfo, kNumKernels> kKernels = {{
#define SLUICE_KERNEL_INFO(id, name, file, parameters, shared) \
  {#name, "sluice_" #name, code_index::file, sizeof(parameters), shared},
    SLUICE_KERNELS(SLUICE_KERNEL_INFO)
#undef SLUICE_KERNEL_INFO
}};

}  // namespace

std::span<const DeviceCode> device_codes() {
  static const std::array codes = {
#define SLUICE_CODE(file) \
  DeviceCode{#file, std::span(sluice_device_code_##file, sluice_device_code_##file##_end)},
      SLUICE_DEVICE_CODES(SLUICE_CODE)
#undef SLUICE_CODE
  };
  return codes;
}

const KernelInfo& kernel_info(KernelId id) {
  const auto index = static_cast<std::size_t>(id);
  CHECK(index < kNumKernels);
  return kKernels[index];
}

Result<std::unique_ptr<KernelSet>> KernelSet::load(Gpu& gpu) {
  std::unique_ptr<KernelSet> set(new KernelSet(gpu));
  RETURN_IF_ERROR(set->load_modules());
  for (std::size_t i = 0; i < kNumKernels; ++i) {
    RETURN_IF_ERROR(set->load_function(kKernels[i], set->functions_[i]));
  }
  return set;
}

KernelSet::~KernelSet() {
  for (CUmodule module : modules_) static_cast<void>(gpu_.api().cuModuleUnload(module));
}

Status KernelSet::load_modules() {
  for (const DeviceCode& code : device_codes()) {
    CUmodule module = nullptr;
    const CUresult result = gpu_.api().cuModuleLoadData(&module, code.bytes.data());
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
      return unsupported(fmt::format(
          "{}: {} has capability {}.{}, and this build has device code for {} only; build with "
          "-DSLUICE_CUDA_ARCHITECTURES={}{}, or use --device cpu",
          gpu_.name(), gpu_.info().name, gpu_.info().major, gpu_.info().minor,
          SLUICE_CUDA_ARCHITECTURES_TEXT, gpu_.info().major, gpu_.info().minor));
    }
    RETURN_IF_ERROR(gpu_.check(result, fmt::format("loading the device code '{}'", code.name)));
    modules_.push_back(module);
  }
  return {};
}

Status KernelSet::load_function(const KernelInfo& info, CUfunction& function) {
  const DriverApi& api = gpu_.api();
  RETURN_IF_ERROR(gpu_.check(api.cuModuleGetFunction(&function, modules_[info.code], info.symbol),
                             info.symbol));
  // Load now, because the first launch may be part of a capture.
  RETURN_IF_ERROR(gpu_.check(api.cuFuncLoad(function), info.symbol));
  // A kernel that needs more shared memory than the GPU has is never chosen.
  if (info.shared_bytes > kSharedWithoutAsking && info.shared_bytes <= gpu_.info().shared_bytes) {
    RETURN_IF_ERROR(gpu_.check(
        api.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               info.shared_bytes),
        fmt::format("{}, {} KiB of shared memory", info.symbol, info.shared_bytes / 1024)));
    // The plans rely on several blocks per multiprocessor, so shared memory has priority over the
    // cache.
    RETURN_IF_ERROR(gpu_.check(
        api.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                               CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
        info.symbol));
  }
  std::size_t offset = 0;
  std::size_t bytes = 0;
  RETURN_IF_ERROR(gpu_.check(api.cuFuncGetParamInfo(function, 0, &offset, &bytes), info.symbol));
  if (offset != 0 || bytes != info.parameter_bytes) {
    return internal_error(
        fmt::format("{}: the parameter of {} has {} bytes at {} on the device, {} at 0 on the host",
                    gpu_.name(), info.symbol, bytes, offset, info.parameter_bytes));
  }
  return {};
}

Status KernelSet::expect_blocks(KernelId id, int threads, int wanted) const {
  const KernelInfo& info = kernel_info(id);
  int blocks = 0;
  RETURN_IF_ERROR(gpu_.check(gpu_.api().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                 &blocks, functions_[static_cast<std::size_t>(id)], threads,
                                 static_cast<std::size_t>(info.shared_bytes)),
                             info.symbol));
  if (blocks < wanted) {
    log_warning(
        fmt::format("{}: a multiprocessor holds {} blocks of {}, expected {}: this kernel is "
                    "slower than it could be",
                    gpu_.name(), blocks, info.symbol, wanted));
  }
  return {};
}

void KernelSet::launch(const KernelLaunch& launch, const void* params, std::size_t bytes) {
  const auto& [id, shape] = launch;
  const KernelInfo& info = kernel_info(id);
  CHECK(bytes == info.parameter_bytes);
  CHECK(shape.shared_bytes <= static_cast<std::uint32_t>(info.shared_bytes));
  if (shape.empty()) return;
  // The driver copies what it points to before the call returns.
  void* parameters[] = {const_cast<void*>(params)};
  const CUresult result = gpu_.api().cuLaunchKernel(
      functions_[static_cast<std::size_t>(id)], shape.grid_x, shape.grid_y, 1, shape.block, 1, 1,
      shape.shared_bytes, gpu_.stream(), parameters, nullptr);
  gpu_.submitted(result, info.name);
}

}  // namespace sluice::cuda
