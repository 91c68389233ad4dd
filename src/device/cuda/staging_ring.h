// StagingRing: pinned host memory that copies pass through, so that they are asynchronous whatever
// memory the caller has. A few buffers in turn, each filled from its start; a buffer is used again
// only when the copies from it are done (an event each).
// Owner: the CUDA device. Threads: the engine's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/cuda/gpu.h"

namespace sluice::cuda {

class StagingRing {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
  static constexpr int kBuffers = 4;

  // REQUIRES: the GPU's context is current, here and for all below, and it outlives the ring.
  static Result<std::unique_ptr<StagingRing>> create(Gpu& gpu,
                                                     std::size_t buffer_bytes = kBufferBytes,
                                                     int buffers = kBuffers);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // Between 1 and `bytes` bytes, as many as the buffer at hand has left. The copies that use them
  // are submitted before the next take(). REQUIRES: bytes > 0.
  Result<std::span<std::byte>> take(std::size_t bytes);
  // The stream is idle: every buffer is free.
  void drained();

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    CUevent done = nullptr;
    bool in_flight = false;  // `done` is recorded and not yet waited for
  };

  StagingRing(Gpu& gpu, std::size_t buffer_bytes) : gpu_(gpu), buffer_bytes_(buffer_bytes) {}
  Status advance();

  Gpu& gpu_;
  std::size_t buffer_bytes_;
  std::vector<Buffer> buffers_;
  std::size_t current_ = 0;
  std::size_t used_ = 0;  // of the current buffer
};

}  // namespace sluice::cuda
