// Waiting on a core for something that is about to happen: for less time than a sleeping thread
// needs to wake up.
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

// Spins until done(), until give_up() or until `patience` is over; returns done(). The clock is
// read, and give_up() called, every 64 turns only.
template <class Done, class GiveUp>
bool spin_until(const Done& done, std::chrono::microseconds patience, const GiveUp& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
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
bool spin_until(const Done& done, std::chrono::microseconds patience) {
  return spin_until(done, patience, [] { return false; });
}

}  // namespace sluice
