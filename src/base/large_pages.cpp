#include "base/large_pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

namespace sluice {
namespace {

constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which the C library of Debian 12 may not name

// "55d0c0000000-55d0c0200000 r--s ...": the first line of a mapping.
bool read_range(std::string_view line, std::uintptr_t& begin, std::uintptr_t& end) {
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, begin, 16);
  if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, last, end, 16);
  return second.ec == std::errc() && second.ptr != last && *second.ptr == ' ';
}

// "ShmemPmdMapped:     4096 kB"; 0 for other fields.
std::size_t large_bytes(std::string_view line) {
  constexpr std::string_view kFields[] = {"ShmemPmdMapped:", "FilePmdMapped:", "AnonHugePages:"};
  for (const std::string_view field : kFields) {
    if (!line.starts_with(field)) continue;
    line.remove_prefix(std::min(line.find_first_not_of(' ', field.size()), line.size()));
    std::size_t kib = 0;
    std::from_chars(line.data(), line.data() + line.size(), kib);
    return kib << 10;
  }
  return 0;
}

std::string rule_in(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return chosen_rule(line);
}

// The whole large pages of a mapping.
std::span<const std::byte> whole_pages(std::span<const std::byte> mapping) {
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(mapping.data()) % kLarge;
  if (skipped >= mapping.size()) return {};
  return mapping.subspan(skipped, (mapping.size() - skipped) / kLarge * kLarge);
}

// Touches memory at a multiple of a large page, and tells whether the system gave a large page. Its
// last small page is there then. MADV_COLLAPSE would tell, too, but it waits for other CPUs.
bool fault_in_large_page(std::byte* at) {
  constexpr std::size_t kSmall = 4096;
  *static_cast<volatile std::byte*>(at) = std::byte{0};
  unsigned char there = 0;
  return ::mincore(at + kLarge - kSmall, kSmall, &there) == 0 && (there & 1) != 0;
}

Error no_large_pages(const char* call) {
  return unavailable(std::string("the system gives no large pages: ") + call + ": " +
                     std::strerror(errno));
}

// To memory at a multiple of a large page. 0, or the error for which there is none.
int copy_large_page(std::byte* to, const std::byte* from) {
  const bool large = fault_in_large_page(to);
  std::memcpy(to, from, kLarge);
  // Kernels before 6.1 do not know the advice.
  return large || ::madvise(to, kLarge, kCollapse) == 0 ? 0 : errno;
}

// Frees copies that do not move, because `call` failed.
Error give_up(std::span<std::byte> copies, const char* call) {
  Error error = no_large_pages(call);
  static_cast<void>(::madvise(copies.data(), copies.size(), MADV_DONTNEED));
  static_cast<void>(::mprotect(copies.data(), copies.size(), PROT_READ | PROT_WRITE));
  return error;
}

}  // namespace

std::size_t bytes_in_large_pages(std::string_view smaps, std::uintptr_t begin, std::size_t bytes) {
  std::size_t sum = 0;
  bool inside = false;
  while (!smaps.empty()) {
    const std::size_t end = std::min(smaps.find('\n'), smaps.size());
    const std::string_view line = smaps.substr(0, end);
    smaps.remove_prefix(std::min(end + 1, smaps.size()));
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    if (read_range(line, from, to)) inside = from >= begin && to <= begin + bytes;
    if (inside) sum += large_bytes(line);
  }
  return sum;
}

std::size_t bytes_in_large_pages(const void* begin, std::size_t bytes) {
  std::ostringstream text;
  text << std::ifstream("/proc/self/smaps").rdbuf();
  return bytes_in_large_pages(text.str(), reinterpret_cast<std::uintptr_t>(begin), bytes);
}

std::string chosen_rule(std::string_view setting) {
  const std::size_t open = setting.find('[');
  const std::size_t close = setting.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return std::string(setting.substr(open + 1, close - open - 1));
}

std::string shared_large_page_rule() {
  return rule_in("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

std::string own_large_page_rule() { return rule_in("/sys/kernel/mm/transparent_hugepage/enabled"); }

bool take_large_pages(int fd, std::int64_t from, std::int64_t bytes) {
  const std::int64_t begin = (from + kLargePageBytes - 1) / kLargePageBytes * kLargePageBytes;
  const std::int64_t end = (from + bytes) / kLargePageBytes * kLargePageBytes;
  if (begin >= end) return true;
  const auto length = static_cast<std::size_t>(end - begin);
  // A large page needs an address that is a multiple of its size. The kernel chooses one only where
  // its rule grants large pages, so the mapping is placed in a larger reservation.
  const std::size_t reserved = length + kLarge;
  void* const space =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return true;
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(space) % kLarge;
  void* const map = ::mmap(static_cast<std::byte*>(space) + skipped, length, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_FIXED, fd, begin);
  bool refused = false;
  if (map != MAP_FAILED && grants_large_pages(shared_large_page_rule())) {
    refused = ::madvise(map, length, MADV_HUGEPAGE) != 0;
    if (!refused) static_cast<void>(::madvise(map, length, MADV_POPULATE_WRITE));
  } else if (map != MAP_FAILED) {
    // The kernel collapses only where there is a page. It fills the holes beside it with zeros.
    bool there = true;
    for (std::int64_t at = begin; at < end && there; at += kLargePageBytes) {
      there = ::fallocate(fd, 0, at, 1) == 0;
    }
    refused = there && ::madvise(map, length, kCollapse) != 0 && errno == EINVAL;
  }
  ::munmap(space, reserved);
  return !refused;
}

LargePageMover::LargePageMover(std::span<const std::byte> mapping)
    : mapping_(whole_pages(mapping)) {}

LargePageMover::~LargePageMover() {
  if (space_ == nullptr) return;
  // The range of copies that were moved is free, and may belong to another mapping by now.
  std::byte* const rest = copies_ + moved_;
  ::munmap(space_, static_cast<std::size_t>(copies_ - space_));
  ::munmap(rest, static_cast<std::size_t>(space_ + space_bytes_ - rest));
}

// One mapping for all copies: the kernel joins pages again where they are moved to only if they are
// parts of one. A process may have 65,530 mappings.
Status LargePageMover::reserve() {
  const std::size_t wanted = mapping_.size() + kLarge;
  void* const space = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return no_large_pages("mmap");
  space_ = static_cast<std::byte*>(space);
  space_bytes_ = wanted;
  copies_ = space_ + -reinterpret_cast<std::uintptr_t>(space_) % kLarge;
  if (::madvise(copies_, mapping_.size(), MADV_HUGEPAGE) != 0) return no_large_pages("madvise");
  return {};
}

Status LargePageMover::move_next(ThreadPool& pool) {
  const auto threads = static_cast<std::size_t>(pool.size());
  const std::size_t bytes = std::min(threads * kLarge, mapping_.size() - moved_);
  if (bytes == 0) return {};
  if (space_ == nullptr) RETURN_IF_ERROR(reserve());
  const std::span copies(copies_ + moved_, bytes);
  std::atomic<int> failed = 0;
  pool.parallel_for(static_cast<int>(bytes / kLarge), [&](int page) {
    const std::size_t at = static_cast<std::size_t>(page) * kLarge;
    if (const int error = copy_large_page(copies.data() + at, place() + at)) failed = error;
  });
  if (failed != 0) {
    errno = failed;
    return give_up(copies, "madvise");
  }
  if (::mprotect(copies.data(), bytes, PROT_READ) != 0) return give_up(copies, "mprotect");
  if (::mremap(copies.data(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place()) == MAP_FAILED) {
    return give_up(copies, "mremap");
  }
  moved_ += bytes;
  return {};
}

bool grants_large_pages(std::string_view rule) {
  return rule == "advise" || rule == "within_size" || rule == "always" || rule == "force";
}

}  // namespace sluice
