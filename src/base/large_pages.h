// Large pages: how much of a mapping the system maps with one entry for each 2 MiB instead of 4
// KiB. The entries for the rest take 2 MiB a GiB, in each process. Linux decides while memory is
// first written; /sys/kernel/mm/transparent_hugepage says whether a process's own memory (enabled)
// and shared memory (shmem_enabled) may get any.
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Bytes of [begin, begin + bytes) that this process maps in large pages now. 0 if /proc does not
// say. Reads /proc/self/smaps, which takes a millisecond and more for large mappings.
std::size_t bytes_in_large_pages(const void* begin, std::size_t bytes);

// The same from the text of smaps.
std::size_t bytes_in_large_pages(std::string_view smaps, std::uintptr_t begin, std::size_t bytes);

// The system's rule for shared memory, such as "advise"; empty: this kernel has none.
std::string shared_large_page_rule();
// The same for a process's own memory: "always", "madvise" or "never".
std::string own_large_page_rule();
// The word in brackets.
std::string chosen_rule(std::string_view setting);

// Whether memory that asks for large pages (MADV_HUGEPAGE) may get them under a rule.
bool grants_large_pages(std::string_view rule);

// Gives a shared-memory file large pages for the part of [from, from + bytes) that whole ones fit
// into, and takes them from the system. Contents stay. Where the rule is "never", it collapses
// small pages by MADV_COLLAPSE (Linux 6.1), which only "deny" forbids. Memory stays small, or is
// not taken, where the system lacks large pages or another process uses it meanwhile. False: the
// system refuses them in principle.
bool take_large_pages(int fd, std::int64_t from, std::int64_t bytes);
inline constexpr std::int64_t kLargePageBytes = std::int64_t{2} << 20;

// Moves a mapping into large pages of this process, piece by piece: one thread copies, and another
// one puts the copies in the place of the mapping, while no thread reads it. Addresses and contents
// stay; later changes of a mapped file do not show in what has moved.
class LargePageMover {
 public:
  // `mapping`: private and read-only. The whole large pages that it holds are moved; what is left
  // at both ends stays. REQUIRES: it stays mapped while the mover lives.
  explicit LargePageMover(std::span<const std::byte> mapping);
  ~LargePageMover();
  LargePageMover(const LargePageMover&) = delete;
  LargePageMover& operator=(const LargePageMover&) = delete;

  std::size_t bytes() const { return mapping_.size(); }  // to be moved
  std::size_t copied() const { return copied_.load(std::memory_order_acquire); }
  std::size_t placed() const { return placed_.load(std::memory_order_relaxed); }

  // Copies at most `most` further bytes, a multiple of a large page. An error says why the system
  // gives no large pages; the rest stays as it is. Threads: the one that copies.
  Status copy_next(std::size_t most);
  // Puts at most `most` of the copied bytes in their place. REQUIRES: no thread reads the mapping
  // meanwhile. Threads: the one that places.
  Status place_next(std::size_t most);

 private:
  std::byte* place_of(std::size_t offset) const {
    return const_cast<std::byte*>(mapping_.data()) + offset;
  }

  std::span<const std::byte> mapping_;  // whole large pages
  std::byte* space_ = nullptr;          // a reservation for copies; null: not made
  std::size_t space_bytes_ = 0;
  std::byte* copies_ = nullptr;  // in it, at a multiple of a large page
  std::atomic<std::size_t> copied_{0};
  std::atomic<std::size_t> placed_{0};
};

// How an operator allows it.
inline constexpr const char* kLargePageAdvice =
    "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";

}  // namespace sluice
