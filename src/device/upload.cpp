#include "device/upload.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kTaskBytes = std::size_t{1} << 20;  // filled by one thread at a time

}  // namespace

Result<Upload> Upload::create(Device& device, ThreadPool& pool, std::size_t buffer_bytes) {
  static_assert(kBuffers <= Device::kMarks);
  CHECK(buffer_bytes > 0 && buffer_bytes % kAlignment == 0);
  Upload upload(device, pool, buffer_bytes);
  if (device.traits().host_accessible) return upload;
  for (HostBuffer& buffer : upload.buffers_) {
    ASSIGN_OR_RETURN(buffer, HostBuffer::create(device, buffer_bytes));
  }
  return upload;
}

Status Upload::write(std::byte* target, std::size_t bytes, Fill fill) {
  bytes_ += bytes;
  if (device_->traits().host_accessible) {
    fill_in_parallel(0, bytes, target, fill);
    return {};
  }
  for (std::size_t done = 0; done < bytes;) {
    if (used_ == buffer_bytes_) RETURN_IF_ERROR(advance());
    std::byte* const piece = buffers_[current_].data() + used_;
    const std::size_t count = std::min(bytes - done, buffer_bytes_ - used_);
    fill_in_parallel(done, count, piece, fill);
    RETURN_IF_ERROR(device_->copy_to_device(target + done, piece, count));
    done += count;
    used_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  return {};
}

void Upload::fill_in_parallel(std::size_t offset, std::size_t bytes, std::byte* to, Fill fill) {
  const int tasks = static_cast<int>((bytes + kTaskBytes - 1) / kTaskBytes);
  pool_->parallel_for(tasks, [&](int task) {
    const std::size_t first = static_cast<std::size_t>(task) * kTaskBytes;
    fill(offset + first, std::min(kTaskBytes, bytes - first), to + first);
  });
}

Status Upload::advance() {
  RETURN_IF_ERROR(device_->mark(Queue::kCompute, current_));
  in_flight_[current_] = true;
  current_ = (current_ + 1) % kBuffers;
  used_ = 0;
  if (!std::exchange(in_flight_[current_], false)) return {};
  return device_->wait(Queue::kCompute, current_);
}

Status Upload::finish() {
  RETURN_IF_ERROR(device_->synchronize());
  in_flight_ = {};
  used_ = 0;
  return {};
}

}  // namespace sluice
