// Backing: the memory that backs a piece of a device's address range.
// Values: plain. Descriptors are borrowed for the call that backs the piece; the piece stays valid
// when they are closed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

enum class Protection : std::uint8_t { kReadOnly, kReadWrite };

struct Backing {
  enum class Kind : std::uint8_t {
    kMemory,    // zeroed memory of this process
    kFile,      // a private read-only view of a file
    kShared,    // a descriptor's memory (a memfd), shared with other processes
    kImported,  // a chunk of a device's memory that another process exported
  };
  Kind kind = Kind::kMemory;
  int fd = -1;
  std::size_t fd_offset = 0;  // of the piece's first byte in the descriptor; page-aligned
  Protection protection = Protection::kReadWrite;

  static Backing memory() { return {}; }
  // Bytes past the end of the file in the last page read as zero.
  static Backing file(int fd, std::size_t fd_offset = 0) {
    return {Kind::kFile, fd, fd_offset, Protection::kReadOnly};
  }
  // The memory must be sealed against shrinking. A read-only piece needs a read-only descriptor:
  // then no later protect() of this process can make it writable.
  static Backing shared(int fd, Protection protection, std::size_t fd_offset = 0) {
    return {Kind::kShared, fd, fd_offset, protection};
  }
  // One descriptor for one chunk.
  static Backing imported(int fd, Protection protection) {
    return {Kind::kImported, fd, 0, protection};
  }
};

}  // namespace sluice
