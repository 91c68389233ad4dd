// BlockStaging: host buffers through which KV blocks pass between a tier and a device whose memory
// the host cannot reach. They are pinned where the device has that, so copies run on the transfer
// queue while host and compute queue go on. Copies that are submitted together end as one batch.
// Owner: PageTransfers. Threads: the engine's thread; a tier's threads may use the bytes of a
// buffer between the copies. Errors are the device's, and final. Allocation: none after create().
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "device/host_buffer.h"
#include "engine/transfers.h"

namespace sluice {

class BlockStaging {
 public:
  // At most: blocks, and bytes unless that is less than two blocks.
  static constexpr std::size_t kMaxBuffers = 32;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

  // REQUIRES: the device outlives this, and nothing but Transfers uses marks of its transfer queue.
  static Result<std::unique_ptr<BlockStaging>> create(Device& device, std::size_t block_bytes);
  // Waits for copies.
  ~BlockStaging();
  BlockStaging(const BlockStaging&) = delete;
  BlockStaging& operator=(const BlockStaging&) = delete;

  std::size_t num_buffers() const { return buffers_.size(); }
  // A buffer that is not in use; nothing: all are. It stays in use until give().
  std::optional<std::size_t> take();
  void give(std::size_t buffer) { free_.push_back(buffer); }
  std::span<std::byte> bytes(std::size_t buffer) const {
    return {buffers_[buffer].data(), block_bytes_};
  }

  // Copies that are submitted from now on run after the compute queue's mark `after`
  // (Transfers::kNoMark: after nothing).
  Status begin_after(std::size_t after);
  // Submits a copy between a buffer and a block of the device.
  Status copy(CopyKind kind, std::size_t buffer, std::byte* block);
  // Ends the batch of the copies so far.
  Status submit();
  // Appends the buffers whose copies have run. Never waits.
  Status poll(std::vector<std::size_t>& done);

 private:
  // The marks of the transfer queue that Transfers does not use.
  static constexpr std::size_t kFirstMark = Transfers::kMarks;
  static constexpr std::size_t kMarks = Device::kMarks - kFirstMark;

  struct Batch {
    std::size_t mark = 0;
    std::vector<std::size_t> buffers;
  };

  BlockStaging(Device& device, std::size_t block_bytes);

  Device* device_;
  std::size_t block_bytes_;
  std::vector<HostBuffer> buffers_;
  std::vector<std::size_t> free_;
  std::vector<std::size_t> unmarked_;  // buffers with a copy that no mark follows yet
  std::array<Batch, kMarks> batches_;  // a ring, the oldest first
  std::size_t first_batch_ = 0;
  std::size_t num_batches_ = 0;
};

}  // namespace sluice
