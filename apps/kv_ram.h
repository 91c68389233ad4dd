// The tier in RAM of a command that runs an engine: --kv-ram.
// Functions; the caller's thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "engine/engine_loader.h"

namespace sluice {

// Gives the executor a tier of `bytes` bytes. Blocks are packed if the device computes in the same
// memory. kUnsupported: packing does not gain on this model's KV. kInvalidArgument: the memory is
// not there, or has no room for a block.
Status add_kv_ram(std::int64_t bytes, const Device& device, LoadedExecutor& executor);

}  // namespace sluice
