// Prefetches of the line at an address, which may lie behind the end of memory. They are written as
// assembly, because g++ 12 takes a function that does nothing else than _mm_prefetch() for one
// without effect and removes its calls: attention and FP8 on tile registers ran without any
// prefetch for that reason. check_prefetch.cmake keeps _mm_prefetch() out of the kernels.
#pragma once

#include <cstdint>

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

// Fetches the first bytes of rows that are `stride` bytes apart into the second-level cache, in
// some parts: all at once, the lines would wait for each other, and what is computed meanwhile for
// them.
class FetchInParts {
 public:
  SLUICE_INLINE FetchInParts() = default;
  SLUICE_INLINE FetchInParts(const void* first, std::int64_t row_bytes, std::int64_t stride,
                             std::int64_t rows, std::int64_t parts)
      : row_(static_cast<const char*>(first)), row_bytes_(row_bytes), stride_(stride), rows_(rows) {
    // The first row from the beginning of its line on. Where the stride is no multiple of a line,
    // later rows may need one line more.
    const auto before = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first) % kLine);
    row_ -= before;
    row_bytes_ += before;
    share_ = (rows * ((row_bytes_ + kLine - 1) / kLine) + parts - 1) / parts;
  }

  SLUICE_INLINE void fetch() {
    for (std::int64_t i = 0; i < share_ && rows_ > 0; ++i) {
      prefetch_second(row_ + at_);
      at_ += kLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* row_ = nullptr;
  std::int64_t row_bytes_ = 0;
  std::int64_t stride_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t share_ = 0;  // lines of a part
  std::int64_t at_ = 0;
};

}  // namespace sluice::kernels
