// TransferQueue: the CPU device's queue for transfers. The CPU has no copy engine and the cores
// belong to one pool, so copies wait in a list until the owner runs them: one bounded slice at a
// time between steps (advance), or all up to a mark (finish_until). The pool's threads share the
// bytes of a slice. Copies run in order of submission.
// Owner: the CPU device. Threads: the engine's thread. Allocates only when the list becomes longer
// than ever before.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/thread_pool.h"
#include "device/device.h"

namespace sluice {

class TransferQueue {
 public:
  // About a millisecond's work for one core.
  static constexpr std::size_t kSliceBytes = std::size_t{4} << 20;

  explicit TransferQueue(ThreadPool& pool) : pool_(&pool) {}

  // REQUIRES: the ranges do not overlap.
  void add(void* target, const void* source, std::size_t bytes);
  void mark(std::size_t number) { marks_.at(number) = submitted_; }
  bool reached(std::size_t number) const { return marks_.at(number) <= submitted_ - pending(); }

  // Moves at most kSliceBytes.
  void advance();
  void finish_until(std::size_t number);
  void finish();

 private:
  struct Copy {
    std::byte* target;
    const std::byte* source;
    std::size_t bytes;
  };
  std::size_t pending() const { return copies_.size() - first_; }
  void move(std::byte* target, const std::byte* source, std::size_t bytes);

  ThreadPool* pool_;
  std::vector<Copy> copies_;  // those before first_ are done
  std::size_t first_ = 0;
  std::size_t submitted_ = 0;  // since the start
  std::array<std::size_t, Device::kMarks> marks_ = {};
};

}  // namespace sluice
