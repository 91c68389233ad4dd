// HostBuffer: memory of the host that copies to and from a device may use while the host goes on
// (pinned, on a GPU). A copy from it must have run before it is written again, and one into it
// before it is read: Device::wait or Device::synchronize.
// Owner: whoever fills or reads it; the device must outlive it. Threads: the engine's thread.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

class HostBuffer {
 public:
  // `bytes` of memory, aligned to 64; kResourceExhausted when there is none.
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
