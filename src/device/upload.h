// Upload: fills device memory with bytes that the host produces on all threads of a pool. If the
// host cannot write device memory, Upload uses a few buffers in rotation: it fills one while others
// are copied.
// Uses the compute queue's marks [0, kBuffers); no other code may use them meanwhile.
// Owner: the loader. Threads: the caller's and the pool's; both call fill().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "device/host_buffer.h"

namespace sluice {

class Upload {
 public:
  static constexpr std::size_t kBuffers = 4;
  static constexpr std::size_t kBufferBytes = std::size_t{16} << 20;

  // `buffer_bytes`: a multiple of 64. REQUIRES: device and pool outlive it.
  static Result<Upload> create(Device& device, ThreadPool& pool,
                               std::size_t buffer_bytes = kBufferBytes);

  // Writes `bytes` to `target` in pieces: fill(offset, bytes, to) writes the piece that starts at
  // `offset`, a multiple of 64, to host memory `to`. Returns when all pieces are written; copies
  // may still run.
  using Fill = FunctionRef<void(std::size_t offset, std::size_t bytes, std::byte* to)>;
  Status write(std::byte* target, std::size_t bytes, Fill fill);

  // Waits for all copies.
  Status finish();

  std::uint64_t bytes() const { return bytes_; }  // written so far

 private:
  Upload(Device& device, ThreadPool& pool, std::size_t buffer_bytes)
      : device_(&device), pool_(&pool), buffer_bytes_(buffer_bytes) {}
  // Fills the `bytes` that start at `offset`, at `to`.
  void fill_in_parallel(std::size_t offset, std::size_t bytes, std::byte* to, Fill fill);
  // Switches to the next buffer, once its copies are done.
  Status advance();

  Device* device_;
  ThreadPool* pool_;
  std::size_t buffer_bytes_;
  std::array<HostBuffer, kBuffers> buffers_;  // empty if the host can write device memory
  std::array<bool, kBuffers> in_flight_ = {};
  std::size_t current_ = 0;
  std::size_t used_ = 0;  // of the current buffer
  std::uint64_t bytes_ = 0;
};

}  // namespace sluice
