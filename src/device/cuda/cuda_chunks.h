// The chunks of a GPU's memory that processes share (device_chunks.h), over the driver's virtual
// memory. It has streams and addresses of its own, so the engine's work does not wait for it.
// A GPU that imports chunks of another GPU needs peer access to it; without, import() fails.
// Threads: any; calls take turns.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "device/cuda/driver.h"
#include "device/device_chunks.h"

namespace sluice::cuda {

// kInvalidArgument if `bytes` is less than a chunk.
Result<std::unique_ptr<DeviceChunks>> make_chunks(const DriverApi& api, int index,
                                                  std::int64_t bytes);

}  // namespace sluice::cuda
