// Shared memory: a memfd of fixed size that processes share by passing its descriptor. It cannot
// shrink, so a process that maps it never loses pages.
// Sealed memory can never be written or resized again, by anyone.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

// Creates zeroed, writable memory. `name` shows in /proc/PID/maps. kResourceExhausted when the
// system refuses.
Result<FileDescriptor> create_shared_memory(const std::string& name, std::size_t bytes);

// Writes at `offset` without a mapping: a process that another thread starts meanwhile would
// inherit a writable mapping until its exec, and the memory could not be sealed. kResourceExhausted
// when the system has no memory. REQUIRES: offset + bytes.size() is inside the memory.
Status write_shared_memory(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                           const char* what);

// Opens a read-only descriptor of the same memory, whose mappings can never become writable.
// kUnavailable if /proc is not mounted.
Result<FileDescriptor> read_only_descriptor(int fd);

// Forbids writes, other sizes and other seals. `what` names the memory in errors. kInternal while a
// writable mapping exists.
Status seal_shared_memory(int fd, const char* what);
// kInvalidArgument if the memory lacks one of those seals.
Status check_sealed(int fd, const char* what);

Result<std::size_t> shared_memory_size(int fd, const char* what);

// Forbids all writes but those through mappings that are writable already, so that one process goes
// on writing what others read. `what` names the memory in errors. kUnsupported if the kernel lacks
// the seal (before 5.1).
Status seal_against_new_writers(int fd, const char* what);

// Maps the first `bytes` bytes read-only. Shared by all that read them; the last one unmaps.
// REQUIRES: bytes > 0.
Result<std::shared_ptr<const std::byte>> map_shared_memory(int fd, std::size_t bytes,
                                                           const char* what);

// A mapping with one owner.
struct Unmap {
  std::size_t bytes = 0;
  void operator()(const void* data) const;
};
using MemoryMapping = std::unique_ptr<std::byte, Unmap>;
enum class MemoryAccess : std::uint8_t { kRead, kReadWrite };
Result<MemoryMapping> map_memory(int fd, std::size_t bytes, MemoryAccess access, const char* what);

}  // namespace sluice
