#include "device/cuda/lora_launch.h"

#include <fmt/format.h>

#include <string_view>

#include "device/cuda/kernels/lora_tiles.h"

namespace sluice::cuda {
namespace {

bool is_multiple_of(const void* address, std::int64_t of) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(of) == 0;
}

Status check_lora(std::string_view op, DType data, const LoraTable& table, const LoraBatch& batch) {
  if (!is_float(data) || !is_float(table.dtype)) {
    return unsupported(fmt::format("{}: dtypes {} and {}, expected f32, f16 or bf16", op,
                                   dtype_name(data), dtype_name(table.dtype)));
  }
  if (table.num_modules < 1 || table.num_modules > LoraTable::kMaxModules) {
    return internal_error(fmt::format("{}: {} modules, expected 1 to {}", op, table.num_modules,
                                      LoraTable::kMaxModules));
  }
  if (table.max_rank < 1 || table.max_rank > LoraTable::kMaxRank) {
    return internal_error(fmt::format("{}: ranks of up to {}, expected 1 to {}", op, table.max_rank,
                                      LoraTable::kMaxRank));
  }
  if (!is_multiple_of(table.base, LoraEntry::kAlignment)) {
    return internal_error(fmt::format("{}: adapters at {}, expected a multiple of {}", op,
                                      table.base, LoraEntry::kAlignment));
  }
  if (batch.num_segments.capacity < 0) {
    return internal_error(fmt::format("{}: {} segments", op, batch.num_segments.capacity));
  }
  if (batch.num_segments.capacity > kMaxGridY) {
    return unsupported(
        fmt::format("{}: {} segments, at most {}", op, batch.num_segments.capacity, kMaxGridY));
  }
  return {};
}

bool suits_tensor_cores(const LoraShrinkParams& p) {
  return (p.x.dtype == DType::kBF16 || p.x.dtype == DType::kF16) && p.table.dtype == p.x.dtype &&
         p.x.dims[1] % 8 == 0 && p.x.strides[0] % 8 == 0 && is_multiple_of(p.x.data, 16);
}

}  // namespace

Result<KernelLaunch> plan_launch(const LoraShrinkParams& p) {
  RETURN_IF_ERROR(check_lora("lora_shrink", p.x.dtype, p.table, p.batch));
  if (p.h.parts != LoraHidden::parts_of(p.x.dims[1])) {
    return internal_error(fmt::format("lora_shrink: {} parts of h for inputs of {}, expected {}",
                                      p.h.parts, p.x.dims[1], LoraHidden::parts_of(p.x.dims[1])));
  }
  const std::int64_t tiles = divide_up(p.table.max_rank, kLoraRanks) * p.table.num_modules;
  LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(tiles * p.h.parts);
  shape.grid_y = static_cast<std::uint32_t>(p.batch.num_segments.capacity);
  shape.block = kLoraShrinkBlock;
  return KernelLaunch{suits_tensor_cores(p) ? KernelId::kLoraShrink : KernelId::kLoraShrinkPlain,
                      shape};
}

Result<KernelLaunch> plan_launch(const LoraExpandParams& p) {
  RETURN_IF_ERROR(check_lora("lora_expand", p.out.dtype, p.table, p.batch));
  if (p.out.dtype != DType::kF32) {
    return unsupported(
        fmt::format("lora_expand: out of dtype {}, expected f32", dtype_name(p.out.dtype)));
  }
  std::int64_t columns = 0;
  std::int64_t tiles = 0;
  for (std::int32_t m = 0; m < p.table.num_modules; ++m) {
    columns += p.widths[m];
    tiles += divide_up(p.widths[m], kLoraColumns);
  }
  if (columns != p.out.dims[1]) {
    return internal_error(
        fmt::format("lora_expand: the width of out is {}, expected {}", p.out.dims[1], columns));
  }
  LaunchShape shape;
  shape.grid_x = static_cast<std::uint32_t>(tiles);
  shape.grid_y = static_cast<std::uint32_t>(p.batch.num_segments.capacity);
  shape.block = kLoraExpandBlock;
  return KernelLaunch{KernelId::kLoraExpand, shape};
}

}  // namespace sluice::cuda
