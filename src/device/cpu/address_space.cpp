#include "device/cpu/address_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/core.h>

#include "base/check.h"
#include "base/page_in.h"

namespace sluice {
namespace {

// Tools that shadow memory (valgrind) take very long for one huge commit. With pieces, the kernel
// can also fail in the middle instead of as a whole.
constexpr std::size_t kCommitPiece = std::size_t{64} << 20;
constexpr std::size_t kPageBytes = 4096;

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void* map_without_access(std::byte* at, std::size_t bytes, int placement) {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | placement, -1, 0);
}

// Restores the reservation without access.
void remove_access(std::byte* at, std::size_t bytes) {
  CHECK(map_without_access(at, bytes, MAP_FIXED) == at);
}

std::string reason() { return std::strerror(errno); }

void check_inside(AddressRange range, std::size_t offset, std::size_t bytes) {
  CHECK(offset % AddressSpace::kGranularity == 0);
  CHECK(bytes > 0 && offset <= range.bytes && bytes <= range.bytes - offset);
}

int access_flags(Protection protection) {
  return protection == Protection::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
}

Status back_with_memory(std::byte* base, std::size_t bytes) {
  CHECK(bytes % AddressSpace::kGranularity == 0);
  for (std::size_t done = 0; done < bytes; done += kCommitPiece) {
    std::byte* at = base + done;
    const std::size_t piece = std::min(kCommitPiece, bytes - done);
    // A new mapping, not mprotect() of the reservation: the system counts it against its commit
    // limit, so that an impossible size fails here and not in a step.
    if (mmap(at, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        at) {
      auto error = resource_exhausted(
          fmt::format("backing {} bytes with memory, {} done: {}", bytes, done, reason()));
      remove_access(base, std::min(bytes, done + piece));
      return error;
    }
    // Advice: without huge pages everything works, with more page-table walks.
    static_cast<void>(madvise(at, piece, MADV_HUGEPAGE));
  }
  return {};
}

// Reading a mapping beyond the end of its file raises a signal, so such a mapping is refused here.
Status check_size(const Backing& backing, std::size_t bytes) {
  CHECK(backing.fd_offset % kPageBytes == 0);
  struct stat info{};
  if (fstat(backing.fd, &info) != 0) return invalid_argument("mapping a file: " + reason());
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (backing.fd_offset <= size && bytes <= size - backing.fd_offset) return {};
  return invalid_argument(
      fmt::format("mapping a file: {} bytes from byte {} requested, the file has {}; was it "
                  "truncated?",
                  bytes, backing.fd_offset, info.st_size));
}

Status check_shared(const Backing& backing) {
  const int flags = fcntl(backing.fd, F_GETFL);
  if (flags < 0) return invalid_argument("mapping shared memory: " + reason());
  const int access = flags & O_ACCMODE;
  if (backing.protection == Protection::kReadOnly && access != O_RDONLY) {
    return invalid_argument(
        "mapping shared memory: the descriptor can write, so the mapping could be made writable "
        "later; pass a descriptor opened read-only");
  }
  if (backing.protection == Protection::kReadWrite && access != O_RDWR) {
    return invalid_argument("mapping shared memory: the descriptor cannot read and write");
  }
  const int seals = fcntl(backing.fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return invalid_argument(
        "mapping shared memory: the descriptor is not a memfd sealed against shrinking, so its "
        "owner could end this process; add F_SEAL_SHRINK");
  }
  return {};
}

Status map_descriptor(std::byte* at, std::size_t bytes, const Backing& backing, int sharing) {
  if (mmap(at, bytes, access_flags(backing.protection), sharing | MAP_FIXED, backing.fd,
           static_cast<off_t>(backing.fd_offset)) == at) {
    // A process that is being started inherits no mapping: its copy of a writable one would keep
    // the memory from being sealed until its exec.
    if (sharing != MAP_SHARED) return {};
    static_cast<void>(madvise(at, bytes, MADV_DONTFORK));
    // As for memory of the process; bytes_in_large_pages() tells what the system gave.
    static_cast<void>(madvise(at, bytes, MADV_HUGEPAGE));
    return {};
  }
  // A failed MAP_FIXED may have removed the previous mapping.
  auto error = unavailable(fmt::format("mapping {} bytes of a file: {}", bytes, reason()));
  remove_access(at, round_up(bytes, kPageBytes));
  return error;
}

// Maps the range without access, if none of it is in use. Returns 0 or the cause as errno: EEXIST
// when the range is taken.
int take(std::byte* wanted, std::size_t bytes) {
  void* const got = map_without_access(wanted, bytes, MAP_FIXED_NOREPLACE);
  if (got == wanted) return 0;
  if (got != MAP_FAILED) {  // kernels before 4.17 take the address as a hint only
    munmap(got, bytes);
    return EEXIST;
  }
  // valgrind and sanitizers refuse addresses they want for themselves as invalid.
  return errno == EINVAL ? EEXIST : errno;
}

}  // namespace

Result<AddressRange> AddressSpace::reserve(std::size_t bytes) const {
  if (bytes == 0) return invalid_argument("reserving address space: 0 bytes requested");
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
    last_errno = take(wanted, bytes);
    if (last_errno == 0) return AddressRange{wanted, bytes};
    if (last_errno != EEXIST) break;
  }
  return unavailable(fmt::format("reserving {} bytes of address space from {:#x} on: {}", bytes,
                                 kFirstBase,
                                 last_errno == EEXIST ? std::string("every slot is taken")
                                                      : std::string(std::strerror(last_errno))));
}

Result<AddressRange> AddressSpace::reserve_at(std::byte* base, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t end = kFirstBase + kSlotBytes * kNumSlots;
  bytes = round_up(std::max<std::size_t>(bytes, 1), kGranularity);
  const bool is_slot =
      address >= kFirstBase && address < end && (address - kFirstBase) % kSlotBytes == 0;
  if (!is_slot || bytes > end - address) {
    return unavailable(fmt::format("the base {:#x} is none of this device's", address));
  }
  const int cause = take(base, bytes);
  if (cause == 0) return AddressRange{base, bytes};
  return unavailable(fmt::format("{} bytes at the base {:#x} cannot be reserved: {}", bytes,
                                 address,
                                 cause == EEXIST ? "the range is taken" : std::strerror(cause)));
}

void AddressSpace::release(AddressRange range) const {
  CHECK(munmap(range.base, range.bytes) == 0);
}

Status AddressSpace::back(AddressRange range, std::size_t offset, std::size_t bytes,
                          const Backing& backing) const {
  check_inside(range, offset, bytes);
  switch (backing.kind) {
    case Backing::Kind::kMemory: return back_with_memory(range.base + offset, bytes);
    case Backing::Kind::kFile:
      RETURN_IF_ERROR(check_size(backing, bytes));
      return map_descriptor(range.base + offset, bytes, backing, MAP_PRIVATE);
    case Backing::Kind::kShared:
      RETURN_IF_ERROR(check_shared(backing));
      RETURN_IF_ERROR(check_size(backing, bytes));
      return map_descriptor(range.base + offset, bytes, backing, MAP_SHARED);
    case Backing::Kind::kImported: break;
  }
  return unsupported("host memory is imported as shared memory, by its descriptor");
}

void AddressSpace::unback(AddressRange range, std::size_t offset, std::size_t bytes) const {
  check_inside(range, offset, bytes);
  remove_access(range.base + offset, bytes);
}

Status AddressSpace::populate(AddressRange range, std::size_t offset, std::size_t bytes) const {
  check_inside(range, offset, bytes);
  const int cause = populate_pages({range.base + offset, bytes}, PageUse::kWrite);
  if (cause == 0) return {};
  return resource_exhausted(
      fmt::format("taking {} bytes of memory from the system: {}", bytes, std::strerror(cause)));
}

void AddressSpace::discard(AddressRange range, std::size_t offset, std::size_t bytes) const {
  check_inside(range, offset, bytes);
  // It fails only for pages locked in memory, which may stay.
  static_cast<void>(madvise(range.base + offset, bytes, MADV_DONTNEED));
}

Status AddressSpace::protect(AddressRange range, std::size_t offset, std::size_t bytes,
                             Protection protection) const {
  check_inside(range, offset, bytes);
  if (mprotect(range.base + offset, bytes, access_flags(protection)) != 0) {
    return internal_error(fmt::format("changing the protection of {} bytes: {}", bytes, reason()));
  }
  return {};
}

}  // namespace sluice
