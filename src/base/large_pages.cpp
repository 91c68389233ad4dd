#include "base/large_pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/check.h"

namespace sluice {
namespace {

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
  constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(mapping.data()) % kLarge;
  if (skipped >= mapping.size()) return {};
  return mapping.subspan(skipped, (mapping.size() - skipped) / kLarge * kLarge);
}

Error no_large_pages(const char* call) {
  return unavailable(std::string("the system gives no large pages: ") + call + ": " +
                     std::strerror(errno));
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
  constexpr auto kAlign = static_cast<std::size_t>(kLargePageBytes);
  const std::size_t reserved = length + kAlign;
  void* const space =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return true;
  const std::size_t skipped = -reinterpret_cast<std::uintptr_t>(space) % kAlign;
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
  // The range of copies that were placed is free, and may belong to another mapping by now.
  std::byte* const rest = copies_ + placed();
  ::munmap(space_, static_cast<std::size_t>(copies_ - space_));
  ::munmap(rest, static_cast<std::size_t>(space_ + space_bytes_ - rest));
}

Status LargePageMover::copy_next(std::size_t most) {
  constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);
  CHECK(most > 0 && most % kLarge == 0);
  const std::size_t done = copied();
  const std::size_t bytes = std::min(most, mapping_.size() - done);
  if (bytes == 0) return {};
  if (space_ == nullptr) {
    // One mapping for all copies, with a page that exists before the mapping is split: only then do
    // pieces become one mapping again where they are moved to. A process may have 65,530 of them.
    const std::size_t wanted = mapping_.size() + kLarge;
    void* const space = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return no_large_pages("mmap");
    space_ = static_cast<std::byte*>(space);
    space_bytes_ = wanted;
    copies_ = space_ + -reinterpret_cast<std::uintptr_t>(space_) % kLarge;
    if (::madvise(copies_, mapping_.size(), MADV_HUGEPAGE) != 0) return no_large_pages("madvise");
    *copies_ = std::byte{0};
  }
  std::byte* const copy = copies_ + done;
  std::memcpy(copy, place_of(done), bytes);
  if (::mprotect(copy, bytes, PROT_READ) != 0) return no_large_pages("mprotect");
  // Tells whether the pages are large, and makes them so if they are not. Kernels before 6.1 do not
  // know the advice.
  if (::madvise(copy, bytes, kCollapse) != 0 &&
      (errno != EINVAL || bytes_in_large_pages(copy, bytes) == 0)) {
    Error error = no_large_pages("madvise");
    static_cast<void>(::madvise(copy, bytes, MADV_DONTNEED));
    static_cast<void>(::mprotect(copy, bytes, PROT_READ | PROT_WRITE));
    return error;
  }
  copied_.store(done + bytes, std::memory_order_release);
  return {};
}

Status LargePageMover::place_next(std::size_t most) {
  CHECK(most > 0 && most % static_cast<std::size_t>(kLargePageBytes) == 0);
  const std::size_t done = placed();
  const std::size_t bytes = std::min(most, copied() - done);
  if (bytes == 0) return {};
  if (::mremap(copies_ + done, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place_of(done)) ==
      MAP_FAILED) {
    return no_large_pages("mremap");
  }
  placed_.store(done + bytes, std::memory_order_relaxed);
  return {};
}

bool grants_large_pages(std::string_view rule) {
  return rule == "advise" || rule == "within_size" || rule == "always" || rule == "force";
}

}  // namespace sluice
