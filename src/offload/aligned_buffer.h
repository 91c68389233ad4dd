// AlignedBuffer: memory that O_DIRECT may use, zeros at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace sluice {

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBuffer = std::unique_ptr<std::byte, FreeMemory>;

// `bytes`: a multiple of the alignment.
inline AlignedBuffer make_aligned_buffer(std::uint64_t bytes, std::uint64_t alignment) {
  void* const memory = std::aligned_alloc(alignment, bytes);
  CHECK(memory != nullptr);
  std::memset(memory, 0, bytes);
  return AlignedBuffer(static_cast<std::byte*>(memory));
}

}  // namespace sluice
