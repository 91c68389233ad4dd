// Prefetches of the line at an address, which may lie behind the end of memory. They are written as
// assembly, because g++ 12 takes a function that does nothing else than _mm_prefetch() for one
// without effect and removes its calls: attention and FP8 on tile registers ran without any
// prefetch for that reason. check_prefetch.cmake keeps _mm_prefetch() out of the kernels.
#pragma once

#include "device/cpu/kernels/inline.h"

namespace sluice::kernels {

// Into the first-level cache.
SLUICE_INLINE void prefetch_near(const void* line) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(line)));
}
// Into the second-level cache.
SLUICE_INLINE void prefetch_second(const void* line) {
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(line)));
}
// Into the last-level cache at least.
SLUICE_INLINE void prefetch_far(const void* line) {
  asm volatile("prefetcht2 %0" : : "m"(*static_cast<const char*>(line)));
}

}  // namespace sluice::kernels
