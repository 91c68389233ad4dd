// Takes CPU time, for tests of what rests after it.
#pragma once

#include "base/work_pace.h"

namespace sluice::test {

// On the calling thread, at least so much.
inline void take_cpu_time(Duration time) {
  const ThreadCpuClock cpu;
  const TimePoint end = cpu.now() + time;
  while (cpu.now() < end) {
  }
}

}  // namespace sluice::test
