// MappingGuard: keeps the process alive when a mapped file is truncated. Reading a mapping beyond
// the end of its file raises SIGBUS, which would end the process. While a range is guarded, a
// signal handler maps zero pages there instead, and faulted() returns true from then on. The owner
// must not use anything that it read from the range since the last check. Every other SIGBUS goes
// to the previously installed action.
// Owner: the owner of the mapping. Threads: any thread may call faulted().
#pragma once

#include <cstddef>
#include <utility>

namespace sluice {

class MappingGuard {
 public:
  // Ranges beyond this number are not guarded; a warning says so.
  static constexpr std::size_t kMaxRanges = 4096;

  MappingGuard() = default;
  // REQUIRES: the range stays mapped until the guard is destroyed.
  MappingGuard(const std::byte* data, std::size_t bytes);
  ~MappingGuard() { release(); }
  MappingGuard(MappingGuard&& other) noexcept : index_(std::exchange(other.index_, kNone)) {}
  MappingGuard& operator=(MappingGuard&& other) noexcept;

  // Whether a read of the range has hit a missing page.
  bool faulted() const;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  void release();

  std::size_t index_ = kNone;
};

}  // namespace sluice
