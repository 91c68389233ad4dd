// A mapping of a shared file that large pages fit into, for tests that count them. Threads: any.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/file.h"
#include "base/large_pages.h"

namespace sluice::test {

// The file's first bytes, at a multiple of a large page, or MAP_FAILED. Stays until the process
// ends.
inline std::byte* map_aligned(const FileDescriptor& file, std::size_t bytes) {
  constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);
  void* const space =
      ::mmap(nullptr, bytes + kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED) return static_cast<std::byte*>(space);
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(space) % kLarge;
  return static_cast<std::byte*>(::mmap(static_cast<std::byte*>(space) + skipped, bytes,
                                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
                                        0));
}

}  // namespace sluice::test
