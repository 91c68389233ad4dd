// MappingGuard: survival of a mapped file's truncation. Reading a mapping behind the end of its
// file raises SIGBUS, which ends the process. While a range is guarded, the signal's handler puts
// zero pages there instead, and the guard remembers it: everything that was read from the range
// since is in doubt, and its owner must not use it. Any other SIGBUS goes to the action that was
// set before.
// Owner: the owner of the mapping. Threads: faulted() may be called from any thread.
#pragma once

#include <cstddef>
#include <utility>

namespace sluice {

class MappingGuard {
 public:
  // More ranges than this at a time are left unguarded, with a warning.
  static constexpr std::size_t kMaxRanges = 4096;

  MappingGuard() = default;
  // REQUIRES: the range is mapped and stays so until the guard is gone.
  MappingGuard(const std::byte* data, std::size_t bytes);
  ~MappingGuard() { release(); }
  MappingGuard(MappingGuard&& other) noexcept : index_(std::exchange(other.index_, kNone)) {}
  MappingGuard& operator=(MappingGuard&& other) noexcept;

  // Whether a page of the range was missing when it was read.
  bool faulted() const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  void release();

  std::size_t index_ = kNone;
};

}  // namespace sluice
