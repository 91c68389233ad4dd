#include "device/cuda/kernel_set.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/kernels/attention_work.h"
#include "device/cuda/kernels/matmul_tiles.h"

// Where the build put the device code (cmake/cuda.cmake).
// NOLINTBEGIN(readability-identifier-naming): symbols of the linker
extern "C" {
extern const std::byte sluice_device_code_rows[];
extern const std::byte sluice_device_code_rows_end[];
extern const std::byte sluice_device_code_attention[];
extern const std::byte sluice_device_code_attention_end[];
extern const std::byte sluice_device_code_lora[];
extern const std::byte sluice_device_code_lora_end[];
extern const std::byte sluice_device_code_matmul[];
extern const std::byte sluice_device_code_matmul_end[];
extern const std::byte sluice_device_code_matmul_stream[];
extern const std::byte sluice_device_code_matmul_stream_end[];
extern const std::byte sluice_device_code_matmul_stream_fp8[];
extern const std::byte sluice_device_code_matmul_stream_fp8_end[];
extern const std::byte sluice_device_code_matmul_tile_fp8[];
extern const std::byte sluice_device_code_matmul_tile_fp8_end[];
extern const std::byte sluice_device_code_matmul_tile[];
extern const std::byte sluice_device_code_matmul_tile_end[];
extern const std::byte sluice_device_code_paged_attention[];
extern const std::byte sluice_device_code_paged_attention_end[];
extern const std::byte sluice_device_code_sampling[];
extern const std::byte sluice_device_code_sampling_end[];
}
// NOLINTEND(readability-identifier-naming)

namespace sluice::cuda {
namespace {

constexpr int kSharedWithoutAsking = 48 << 10;

enum CodeIndex : std::size_t {
  kRows,
  kAttention,
  kMatmul,
  kSampling,
  kMatmulStream,
  kMatmulTile,
  kPagedAttention,
  kLora,
  kMatmulStreamFp8,
  kMatmulTileFp8
};

constexpr std::array<KernelInfo, kNumKernels> kKernels = {{
    {"embed", "sluice_embed", kRows, sizeof(EmbedParams)},
    {"rms_norm", "sluice_rms_norm", kRows, sizeof(RmsNormParams)},
    {"layer_norm", "sluice_layer_norm", kRows, sizeof(LayerNormParams)},
    {"matmul", "sluice_matmul", kMatmul, sizeof(MatmulParams)},
    {"rope_write_kv", "sluice_rope_write_kv", kAttention, sizeof(RopeWriteKvParams)},
    {"attention", "sluice_attention", kAttention, sizeof(AttentionParams)},
    {"gated_activation", "sluice_gated_activation", kRows, sizeof(GatedActivationParams)},
    {"gather_rows", "sluice_gather_rows", kRows, sizeof(GatherRowsParams)},
    {"copy_blocks", "sluice_copy_blocks", kRows, sizeof(CopyBlocksParams)},
    {"sample", "sluice_sample", kSampling, sizeof(SampleParams)},
    {"matmul_8", "sluice_matmul_8", kMatmulStream, sizeof(MatmulParams)},
    {"matmul_16", "sluice_matmul_16", kMatmulStream, sizeof(MatmulParams)},
    {"matmul_64", "sluice_matmul_64", kMatmulTile, sizeof(MatmulParams), kTile64.shared_bytes()},
    {"matmul_128", "sluice_matmul_128", kMatmulTile, sizeof(MatmulParams), kTile128.shared_bytes()},
    {"attention_bf16_64", "sluice_attention_bf16_64", kPagedAttention, sizeof(AttentionParams),
     attention_shared_bytes(64)},
    {"attention_bf16_128", "sluice_attention_bf16_128", kPagedAttention, sizeof(AttentionParams),
     attention_shared_bytes(128)},
    {"attention_bf16_256", "sluice_attention_bf16_256", kPagedAttention, sizeof(AttentionParams),
     attention_shared_bytes(256)},
    {"attention_f16_64", "sluice_attention_f16_64", kPagedAttention, sizeof(AttentionParams),
     attention_shared_bytes(64)},
    {"attention_f16_128", "sluice_attention_f16_128", kPagedAttention, sizeof(AttentionParams),
     attention_shared_bytes(128)},
    {"attention_f16_256", "sluice_attention_f16_256", kPagedAttention, sizeof(AttentionParams),
     attention_shared_bytes(256)},
    {"matmul_16_narrow", "sluice_matmul_16_narrow", kMatmulStream, sizeof(MatmulParams)},
    {"gated_matmul", "sluice_gated_matmul", kMatmul, sizeof(GatedMatmulParams)},
    {"gated_matmul_8", "sluice_gated_matmul_8", kMatmulStream, sizeof(GatedMatmulParams)},
    {"gated_matmul_16", "sluice_gated_matmul_16", kMatmulStream, sizeof(GatedMatmulParams)},
    {"gated_matmul_64", "sluice_gated_matmul_64", kMatmulTile, sizeof(GatedMatmulParams),
     kTile64.shared_bytes()},
    {"gated_matmul_128", "sluice_gated_matmul_128", kMatmulTile, sizeof(GatedMatmulParams),
     kTile128.shared_bytes()},
    {"lora_shrink", "sluice_lora_shrink", kLora, sizeof(LoraShrinkParams)},
    {"lora_shrink_plain", "sluice_lora_shrink_plain", kLora, sizeof(LoraShrinkParams)},
    {"lora_expand", "sluice_lora_expand", kLora, sizeof(LoraExpandParams)},
    {"matmul_fp8_8", "sluice_matmul_fp8_8", kMatmulStreamFp8, sizeof(MatmulParams)},
    {"matmul_fp8_16", "sluice_matmul_fp8_16", kMatmulStreamFp8, sizeof(MatmulParams)},
    {"matmul_fp8_16_narrow", "sluice_matmul_fp8_16_narrow", kMatmulStreamFp8, sizeof(MatmulParams)},
    {"matmul_fp8_64", "sluice_matmul_fp8_64", kMatmulTileFp8, sizeof(MatmulParams),
     kFp8Tile64.shared_bytes()},
    {"matmul_fp8_128", "sluice_matmul_fp8_128", kMatmulTileFp8, sizeof(MatmulParams),
     kFp8Tile128.shared_bytes()},
    {"gated_matmul_fp8_8", "sluice_gated_matmul_fp8_8", kMatmulStreamFp8,
     sizeof(GatedMatmulParams)},
    {"gated_matmul_fp8_16", "sluice_gated_matmul_fp8_16", kMatmulStreamFp8,
     sizeof(GatedMatmulParams)},
    {"gated_matmul_fp8_64", "sluice_gated_matmul_fp8_64", kMatmulTileFp8, sizeof(GatedMatmulParams),
     kFp8Tile64.shared_bytes()},
    {"gated_matmul_fp8_128", "sluice_gated_matmul_fp8_128", kMatmulTileFp8,
     sizeof(GatedMatmulParams), kFp8Tile128.shared_bytes()},
}};

}  // namespace

std::array<DeviceCode, kNumDeviceCodes> device_codes() {
  const auto between = [](const std::byte* begin, const std::byte* end) {
    return std::span<const std::byte>(begin, end);
  };
  return {
      {{"rows", between(sluice_device_code_rows, sluice_device_code_rows_end)},
       {"attention", between(sluice_device_code_attention, sluice_device_code_attention_end)},
       {"matmul", between(sluice_device_code_matmul, sluice_device_code_matmul_end)},
       {"sampling", between(sluice_device_code_sampling, sluice_device_code_sampling_end)},
       {"matmul_stream",
        between(sluice_device_code_matmul_stream, sluice_device_code_matmul_stream_end)},
       {"matmul_tile", between(sluice_device_code_matmul_tile, sluice_device_code_matmul_tile_end)},
       {"paged_attention",
        between(sluice_device_code_paged_attention, sluice_device_code_paged_attention_end)},
       {"lora", between(sluice_device_code_lora, sluice_device_code_lora_end)},
       {"matmul_stream_fp8",
        between(sluice_device_code_matmul_stream_fp8, sluice_device_code_matmul_stream_fp8_end)},
       {"matmul_tile_fp8",
        between(sluice_device_code_matmul_tile_fp8, sluice_device_code_matmul_tile_fp8_end)}}};
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
  // Now, and not at the first launch, which may be part of a capture.
  RETURN_IF_ERROR(gpu_.check(api.cuFuncLoad(function), info.symbol));
  // A kernel that the GPU has too little for is not chosen.
  if (info.shared_bytes > kSharedWithoutAsking && info.shared_bytes <= gpu_.info().shared_bytes) {
    RETURN_IF_ERROR(gpu_.check(
        api.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               info.shared_bytes),
        fmt::format("{}, {} KiB of shared memory", info.symbol, info.shared_bytes / 1024)));
    // The plans count on blocks that share a multiprocessor: shared memory comes before the cache.
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

void KernelSet::launch(KernelId id, const LaunchShape& shape, const void* params,
                       std::size_t bytes) {
  const KernelInfo& info = kernel_info(id);
  CHECK(bytes == info.parameter_bytes);
  CHECK(shape.shared_bytes <= static_cast<std::uint32_t>(info.shared_bytes));
  if (shape.empty()) return;
  // The driver copies what it points to before the call returns.
  void* parameters[] = {const_cast<void*>(params)};
  const CUresult result = gpu_.api().cuLaunchKernel(
      functions_[static_cast<std::size_t>(id)], shape.grid_x, shape.grid_y, 1, shape.block, 1, 1,
      shape.shared_bytes, gpu_.stream(), parameters, nullptr);
  gpu_.submitted(result, info.op);
}

}  // namespace sluice::cuda
