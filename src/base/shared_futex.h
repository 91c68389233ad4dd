// Waiting for a word of memory that processes share (futex), which may be mapped read-only.
// Threads: any. The word must lie in shared memory, not in private anonymous memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace sluice {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Sleeps while the word is `seen`, for at most `longest`. May also return early.
inline void shared_futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                              std::chrono::nanoseconds longest) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec timeout{seconds.count(), (longest - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

// Wakes all that sleep on the word, in any process.
inline void shared_futex_wake(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sluice
