// TransferQueue: the CPU device's queue for transfers. The CPU has no copy engine and the cores
// belong to one pool, so copies wait in a list until the owner runs them: slices between steps
// (advance), or all up to a mark (finish_until). The pool's threads share the bytes of a slice.
// Copies run in order of submission.
// The slices between two steps take a small part of the time that the step took. So a transfer
// beside long steps needs few of them, and one beside short steps lengthens none by much.
// Owner: the CPU device. Threads: the engine's thread. Allocates only when the list becomes longer
// than ever before.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "device/device.h"

namespace sluice {

class TransferQueue {
 public:
  // About a millisecond's work for one core.
  static constexpr std::size_t kSliceBytes = std::size_t{4} << 20;

  // advance() takes at most this part of the time since the last one, and at most kMaxPause. It
  // moves one slice in any case, and the last slice may exceed the time.
  static constexpr int kPausePart = 16;
  static constexpr Duration kMaxPause = std::chrono::milliseconds(8);

  TransferQueue(ThreadPool& pool, const Clock& clock) : pool_(&pool), clock_(&clock) {}

  // REQUIRES: the ranges do not overlap.
  void add(void* target, const void* source, std::size_t bytes);
  void mark(std::size_t number) { marks_.at(number) = submitted_; }
  bool reached(std::size_t number) const { return marks_.at(number) <= submitted_ - pending(); }

  // Moves one slice, and more while there is time. Time counts from the end of the last advance(),
  // or from the add() that found nothing pending.
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
  // Moves at most kSliceBytes.
  void move_slice();
  void move(std::byte* target, const std::byte* source, std::size_t bytes);

  ThreadPool* pool_;
  const Clock* clock_;
  TimePoint idle_since_;      // no slice has moved since then
  std::vector<Copy> copies_;  // those before first_ are done
  std::size_t first_ = 0;
  std::size_t submitted_ = 0;  // since the start
  std::array<std::size_t, Device::kMarks> marks_ = {};
};

}  // namespace sluice
