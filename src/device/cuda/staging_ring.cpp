#include "device/cuda/staging_ring.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::cuda {

Result<std::unique_ptr<StagingRing>> StagingRing::create(Gpu& gpu, std::size_t buffer_bytes,
                                                         int buffers) {
  CHECK(buffer_bytes > 0 && buffers > 0);
  std::unique_ptr<StagingRing> ring(new StagingRing(gpu, buffer_bytes));
  const DriverApi& api = gpu.api();
  for (int i = 0; i < buffers; ++i) {
    void* memory = nullptr;
    RETURN_IF_ERROR(
        gpu.check(api.cuMemHostAlloc(&memory, buffer_bytes, 0), "pinned memory for copies"));
    ring->buffers_.push_back({static_cast<std::byte*>(memory), nullptr, false});
    RETURN_IF_ERROR(gpu.check(
        api.cuEventCreate(&ring->buffers_.back().done, CU_EVENT_DISABLE_TIMING), "an event"));
  }
  return ring;
}

StagingRing::~StagingRing() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.done != nullptr) static_cast<void>(gpu_.api().cuEventDestroy(buffer.done));
    static_cast<void>(gpu_.api().cuMemFreeHost(buffer.memory));
  }
}

Result<std::span<std::byte>> StagingRing::take(std::size_t bytes) {
  CHECK(bytes > 0);
  if (used_ == buffer_bytes_) RETURN_IF_ERROR(advance());
  const std::size_t count = std::min(bytes, buffer_bytes_ - used_);
  const std::span<std::byte> piece(buffers_[current_].memory + used_, count);
  used_ += count;
  return piece;
}

Status StagingRing::advance() {
  Buffer& full = buffers_[current_];
  RETURN_IF_ERROR(gpu_.check(gpu_.api().cuEventRecord(full.done, gpu_.stream()), "marking a copy"));
  full.in_flight = true;
  current_ = (current_ + 1) % buffers_.size();
  used_ = 0;
  Buffer& next = buffers_[current_];
  if (!next.in_flight) return {};
  next.in_flight = false;
  return gpu_.check(gpu_.api().cuEventSynchronize(next.done), "waiting for a copy");
}

void StagingRing::drained() {
  for (Buffer& buffer : buffers_) buffer.in_flight = false;
  used_ = 0;
}

}  // namespace sluice::cuda
