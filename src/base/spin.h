// Busy waiting, for an event that is expected sooner than the kernel could wake a sleeping
// thread.
#pragma once

#include <chrono>

namespace sluice {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or give_up() is true or `timeout` has passed; returns done(). Reads the clock
// and calls give_up() only every 64 iterations.
template <class Done, class GiveUp>
bool spin_until(const Done& done, std::chrono::microseconds timeout, const GiveUp& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      cpu_relax();
    }
    if (give_up()) break;
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

template <class Done>
bool spin_until(const Done& done, std::chrono::microseconds timeout) {
  return spin_until(done, timeout, [] { return false; });
}

}  // namespace sluice
