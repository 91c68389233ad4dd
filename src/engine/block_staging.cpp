#include "engine/block_staging.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {

Result<std::unique_ptr<BlockStaging>> BlockStaging::create(Device& device,
                                                           std::size_t block_bytes) {
  CHECK(block_bytes > 0);
  std::unique_ptr<BlockStaging> staging(new BlockStaging(device, block_bytes));
  const std::size_t count = std::clamp<std::size_t>(kMaxBytes / block_bytes, 2, kMaxBuffers);
  for (std::size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::create(device, block_bytes));
    staging->buffers_.push_back(std::move(buffer));
    staging->free_.push_back(count - 1 - i);
  }
  staging->unmarked_.reserve(count);
  for (Batch& batch : staging->batches_) batch.buffers.reserve(count);
  return staging;
}

BlockStaging::BlockStaging(Device& device, std::size_t block_bytes)
    : device_(&device), block_bytes_(block_bytes) {
  buffers_.reserve(kMaxBuffers);
  free_.reserve(kMaxBuffers);
}

BlockStaging::~BlockStaging() { static_cast<void>(device_->synchronize(Queue::kTransfer)); }

std::optional<std::size_t> BlockStaging::take() {
  if (free_.empty()) return std::nullopt;
  const std::size_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

Status BlockStaging::begin_after(std::size_t after) {
  if (after == Transfers::kNoMark) return {};
  return device_->wait_in(Queue::kTransfer, Queue::kCompute, after);
}

Status BlockStaging::copy(CopyKind kind, std::size_t buffer, std::byte* block) {
  std::byte* const host = buffers_[buffer].data();
  const bool loads = kind == CopyKind::kHostToDevice;
  unmarked_.push_back(buffer);
  return device_->copy(Queue::kTransfer, kind, loads ? block : host, loads ? host : block,
                       block_bytes_);
}

// Without a free mark the copies join the next batch.
Status BlockStaging::submit() {
  if (unmarked_.empty() || num_batches_ == kMarks) return {};
  const std::size_t place = (first_batch_ + num_batches_) % kMarks;
  Batch& batch = batches_[place];
  batch.mark = kFirstMark + place;
  RETURN_IF_ERROR(device_->mark(Queue::kTransfer, batch.mark));
  batch.buffers.swap(unmarked_);
  unmarked_.clear();
  ++num_batches_;
  return {};
}

Status BlockStaging::poll(std::vector<std::size_t>& done) {
  while (num_batches_ > 0) {
    const Batch& oldest = batches_[first_batch_];
    ASSIGN_OR_RETURN(const bool reached, device_->reached(Queue::kTransfer, oldest.mark));
    if (!reached) break;
    done.insert(done.end(), oldest.buffers.begin(), oldest.buffers.end());
    first_batch_ = (first_batch_ + 1) % kMarks;
    --num_batches_;
  }
  return submit();
}

}  // namespace sluice
