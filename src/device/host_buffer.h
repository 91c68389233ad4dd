// HostBuffer: host memory for asynchronous copies to and from a device (pinned, for a GPU). The
// owner waits for a copy from the buffer before it writes the buffer again, and for a copy into the
// buffer before it reads the buffer: see Device::copy.
// Owner: the code that fills or reads it; the device must outlive it. Threads: the engine's thread.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

class HostBuffer {
 public:
  // `bytes` of memory, aligned to 64; kResourceExhausted when there is no memory.
  static Result<HostBuffer> create(Device& device, std::size_t bytes);
  HostBuffer() = default;
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;

  std::byte* data() const { return data_; }

 private:
  HostBuffer(Device& device, std::byte* data) : device_(&device), data_(data) {}

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;  // null: empty
};

}  // namespace sluice
