// Large pages: how much of a mapping the system maps with one entry for each 2 MiB instead of 4
// KiB. The entries for the rest take 2 MiB a GiB, in each process. Linux decides while memory is
// first written; /sys/kernel/mm/transparent_hugepage says whether a process's own memory (enabled)
// and shared memory (shmem_enabled) may get any.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"

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

// Moves a mapping into large pages of this process, one at a time: copies 2 MiB and puts the copy
// in the place of the mapping, while no other thread reads it. Addresses and contents stay; later
// changes of a mapped file do not show in what has moved.
class LargePageMover {
 public:
  // `mapping`: private and read-only. The whole large pages that it holds are moved; the rest at
  // both ends stays. REQUIRES: it stays mapped while the mover lives.
  explicit LargePageMover(std::span<const std::byte> mapping);
  ~LargePageMover();
  LargePageMover(const LargePageMover&) = delete;
  LargePageMover& operator=(const LargePageMover&) = delete;

  std::size_t bytes() const { return mapping_.size(); }  // to be moved
  std::size_t moved() const { return moved_; }

  // Moves the next large page for each thread of the pool; nothing if all have moved. An error says
  // why the system gives none; the rest of the mapping stays as it is. REQUIRES: no other thread
  // reads the mapping meanwhile.
  Status move_next(ThreadPool& pool);

 private:
  Status reserve();
  std::byte* place() const { return const_cast<std::byte*>(mapping_.data()) + moved_; }

  std::span<const std::byte> mapping_;  // whole large pages
  std::byte* space_ = nullptr;          // a reservation for copies; null: not made
  std::size_t space_bytes_ = 0;
  std::byte* copies_ = nullptr;  // in it, at a multiple of a large page
  std::size_t moved_ = 0;
};

// How an operator allows it.
inline constexpr const char* kLargePageAdvice =
    "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";

}  // namespace sluice
