// The tier in RAM of a command that runs an engine: --kv-ram.
// Functions; the caller's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/device.h"
#include "engine/engine_loader.h"
#include "offload/keeping_tier.h"

namespace sluice {

// A tier of `bytes` bytes for the executor's blocks. Blocks are packed if the device computes in
// the same memory. kUnsupported: packing does not gain on this model's KV. kInvalidArgument: the
// memory is not there, or has no room for a block.
Result<std::unique_ptr<KeepingTier>> open_kv_ram(std::int64_t bytes, const Device& device,
                                                 const LoadedExecutor& executor);

}  // namespace sluice
