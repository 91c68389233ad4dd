#include "apps/kv_ram.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "apps/save_rests.h"
#include "base/log.h"
#include "device/cpu/host_memory.h"
#include "offload/ram_tier.h"
#include "tensor/dtype.h"

namespace sluice {
namespace {

constexpr std::string_view kOption = "--kv-ram";

Status check_memory(std::int64_t bytes, bool shared, const LoadedExecutor& executor) {
  ASSIGN_OR_RETURN(const MemoryInfo memory, read_host_memory("/"));
  if (bytes > memory.free_bytes) {
    return invalid_argument(fmt::format("{} of {} MiB: only {} MiB of memory are free", kOption,
                                        bytes >> 20, memory.free_bytes >> 20));
  }
  if (shared && bytes + executor.kv_bytes > memory.free_bytes) {
    log_warning(
        fmt::format("{} of {} MiB and KV memory of up to {} MiB together exceed the {} MiB of "
                    "memory that are free; lower one, or set --kv-cache-memory",
                    kOption, bytes >> 20, executor.kv_bytes >> 20, memory.free_bytes >> 20));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<KeepingTier>> open_kv_ram(std::int64_t bytes, const Device& device,
                                                 const LoadedExecutor& executor) {
  RamTier::Options options;
  options.max_bytes = bytes;
  options.block_bytes = executor.contents->block_bytes();
  options.packs = device.traits().host_accessible;
  options.save_rests = save_rests_beside(device);
  if (options.packs && executor.kv_identity.kv_dtype != dtype_name(DType::kBF16)) {
    return unsupported(fmt::format(
        "{} with --device cpu packs KV, and KV in {} does not become 1.2 times smaller; "
        "use a larger --kv-cache-memory, or --kv-disk",
        kOption, executor.kv_identity.kv_dtype));
  }
  RETURN_IF_ERROR(check_memory(bytes, options.packs, executor));
  auto tier = RamTier::open(options);
  if (!tier) return with_context(std::string(kOption), tier.error());
  const std::int32_t pages = (*tier)->num_pages();
  log_info(fmt::format("{}: room for {}{} blocks of {} KiB", kOption, options.packs ? "up to " : "",
                       pages, options.block_bytes >> 10));
  return std::unique_ptr<KeepingTier>(*std::move(tier));
}

}  // namespace sluice
