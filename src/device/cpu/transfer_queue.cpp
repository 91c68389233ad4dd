#include "device/cpu/transfer_queue.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

constexpr std::size_t kTaskBytes = std::size_t{256} << 10;  // copied by one thread at a time

}  // namespace

void TransferQueue::add(void* target, const void* source, std::size_t bytes) {
  if (first_ == copies_.size()) {
    copies_.clear();
    first_ = 0;
    idle_since_ = clock_->now();
  }
  copies_.push_back(
      {static_cast<std::byte*>(target), static_cast<const std::byte*>(source), bytes});
  ++submitted_;
}

void TransferQueue::advance() {
  const TimePoint start = clock_->now();
  const Duration pause = std::min((start - idle_since_) / kPausePart, kMaxPause);
  do {
    move_slice();
    idle_since_ = clock_->now();
  } while (pending() > 0 && idle_since_ - start < pause);
}

void TransferQueue::move_slice() {
  for (std::size_t left = kSliceBytes; left > 0 && pending() > 0;) {
    Copy& copy = copies_[first_];
    const std::size_t bytes = std::min(copy.bytes, left);
    move(copy.target, copy.source, bytes);
    copy.target += bytes;
    copy.source += bytes;
    copy.bytes -= bytes;
    left -= bytes;
    if (copy.bytes == 0) ++first_;
  }
}

void TransferQueue::finish_until(std::size_t number) {
  while (!reached(number)) move_slice();
}

void TransferQueue::finish() {
  while (pending() > 0) move_slice();
}

void TransferQueue::move(std::byte* target, const std::byte* source, std::size_t bytes) {
  const int tasks = static_cast<int>((bytes + kTaskBytes - 1) / kTaskBytes);
  pool_->parallel_for(tasks, [&](int task) {
    const std::size_t first = static_cast<std::size_t>(task) * kTaskBytes;
    std::memcpy(target + first, source + first, std::min(kTaskBytes, bytes - first));
  });
}

}  // namespace sluice
