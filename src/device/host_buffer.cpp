#include "device/host_buffer.h"

#include <utility>

namespace sluice {

Result<HostBuffer> HostBuffer::create(Device& device, std::size_t bytes) {
  ASSIGN_OR_RETURN(std::byte* const data, device.take_host_memory(bytes));
  return HostBuffer(device, data);
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) device_->give_host_memory(data_);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  return *this;
}

}  // namespace sluice
