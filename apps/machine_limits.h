// The measured limits of this machine that kernels are compared with: the read bandwidth of memory
// and the peak rate of each arithmetic unit, with a given number of threads.
// Values: plain. Threads: measure_limits() runs on the caller's thread and on a pool of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "apps/machine_probe.h"
#include "base/clock.h"

namespace sluice {

struct MachineLimits {
  int threads = 0;
  double read = 0;  // bytes per second; 0: no memory of that size could be had
  // Operations per second by MathUnit, a multiplication and an addition counting as two. 0: the
  // machine lacks the unit.
  std::array<double, kMathUnits.size()> peaks = {};

  double peak(MathUnit unit) const { return peaks[static_cast<std::size_t>(unit)]; }
};

struct LimitsOptions {
  int threads = 1;
  // Memory that is read. The last-level cache must be much smaller, or it is what is measured.
  std::int64_t read_bytes = std::int64_t{1} << 30;
  // Each limit is the best of this many measurements, each of about this length.
  int repetitions = 5;
  Duration length = std::chrono::milliseconds(20);
};

// The best rates: other work on the machine only lowers them.
MachineLimits measure_limits(const LimitsOptions& options, const Clock& clock);

// "read 29.8 GB/s; fma 461, avx512_bf16 232, ... Gop/s".
std::string limits_text(const MachineLimits& limits);
// {"threads":2,"read_gb_s":29.8,"fma_gop_s":461.0,...}; units that the machine lacks are left out.
std::string limits_json(const MachineLimits& limits);

}  // namespace sluice
