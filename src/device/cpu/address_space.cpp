#include "device/cpu/address_space.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/core.h>

#include "base/check.h"

namespace sluice {
namespace {

// Tools that shadow memory (valgrind) take very long for one huge commit; pieces also keep a
// failure from being all or nothing inside the kernel.
constexpr std::size_t kCommitPiece = std::size_t{64} << 20;
constexpr std::size_t kPageBytes = 4096;

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void* map_without_access(std::byte* at, std::size_t bytes, int placement) {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | placement, -1, 0);
}

std::string reason() { return std::strerror(errno); }

void check_inside(AddressRange range, std::size_t offset, std::size_t bytes) {
  CHECK(offset % AddressSpace::kGranularity == 0);
  CHECK(bytes > 0 && offset <= range.bytes && bytes <= range.bytes - offset);
}

}  // namespace

Result<AddressRange> AddressSpace::reserve(std::size_t bytes) const {
  if (bytes == 0) return invalid_argument("reserving address space: 0 bytes asked for");
  if (bytes > kSlotBytes * kNumSlots) {
    return unavailable(
        fmt::format("reserving address space: {} bytes do not fit into {} slots of "
                    "256 GiB",
                    bytes, kNumSlots));
  }
  bytes = round_up(bytes, kGranularity);
  int last_errno = EEXIST;
  for (int slot = 0; slot < kNumSlots; ++slot) {
    const std::size_t base = kFirstBase + static_cast<std::size_t>(slot) * kSlotBytes;
    if (base + bytes > kFirstBase + kSlotBytes * kNumSlots) break;
    auto* wanted = reinterpret_cast<std::byte*>(base);
    void* got = map_without_access(wanted, bytes, MAP_FIXED_NOREPLACE);
    if (got == wanted) return AddressRange{wanted, bytes};
    last_errno = errno;
    if (got != MAP_FAILED) {  // kernels before 4.17 take the address as a hint only
      munmap(got, bytes);
      last_errno = EEXIST;
    }
    // valgrind and sanitizers refuse addresses they want for themselves as invalid.
    if (last_errno == EINVAL) last_errno = EEXIST;
    if (last_errno != EEXIST) break;
  }
  return unavailable(fmt::format("reserving {} bytes of address space from {:#x} on: {}", bytes,
                                 kFirstBase,
                                 last_errno == EEXIST ? std::string("every slot is taken")
                                                      : std::string(std::strerror(last_errno))));
}

void AddressSpace::release(AddressRange range) const {
  CHECK(munmap(range.base, range.bytes) == 0);
}

Status AddressSpace::back(AddressRange range, std::size_t offset, std::size_t bytes) const {
  check_inside(range, offset, bytes);
  CHECK(bytes % kGranularity == 0);
  for (std::size_t done = 0; done < bytes; done += kCommitPiece) {
    std::byte* at = range.base + offset + done;
    const std::size_t piece = std::min(kCommitPiece, bytes - done);
    // A new mapping and not mprotect of the old: it is zeroed, and it is counted against the
    // system's commit limit, so that an impossible size fails here and not in a step.
    if (mmap(at, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        at) {
      auto error = resource_exhausted(
          fmt::format("backing {} bytes with memory, {} done: {}", bytes, done, reason()));
      if (done > 0) unback(range, offset, done);
      return error;
    }
    // Advice: without huge pages everything works, with more page-table walks.
    static_cast<void>(madvise(at, piece, MADV_HUGEPAGE));
  }
  return {};
}

Status AddressSpace::back_with_file(AddressRange range, std::size_t offset, int fd,
                                    std::size_t bytes) const {
  if (bytes == 0) return invalid_argument("mapping a file: 0 bytes asked for");
  check_inside(range, offset, bytes);
  struct stat info{};
  if (fstat(fd, &info) != 0) return invalid_argument("mapping a file: " + reason());
  // Reading a mapping behind the end of its file is a fatal signal: refuse it here.
  if (static_cast<std::uint64_t>(info.st_size) < bytes) {
    return invalid_argument(
        fmt::format("mapping a file: {} bytes asked for, the file has {}; was "
                    "it truncated?",
                    bytes, info.st_size));
  }
  std::byte* at = range.base + offset;
  if (mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != at) {
    // A failed MAP_FIXED may have removed what was there: put the reservation back.
    auto error = unavailable(fmt::format("mapping {} bytes of a file: {}", bytes, reason()));
    unback(range, offset, round_up(bytes, kPageBytes));
    return error;
  }
  return {};
}

void AddressSpace::unback(AddressRange range, std::size_t offset, std::size_t bytes) const {
  check_inside(range, offset, bytes);
  std::byte* at = range.base + offset;
  CHECK(map_without_access(at, bytes, MAP_FIXED) == at);
}

Status AddressSpace::protect(AddressRange range, std::size_t offset, std::size_t bytes,
                             Protection protection) const {
  check_inside(range, offset, bytes);
  const int flags = protection == Protection::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  if (mprotect(range.base + offset, bytes, flags) != 0) {
    return internal_error(fmt::format("changing the protection of {} bytes: {}", bytes, reason()));
  }
  return {};
}

}  // namespace sluice
