#include "base/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

}  // namespace

Result<FileDescriptor> create_shared_memory(const std::string& name, std::size_t bytes) {
  FileDescriptor fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return resource_exhausted(fmt::format("cannot create {} bytes of shared memory for {}: {}",
                                          bytes, name, std::strerror(errno)));
  }
  return fd;
}

Status write_shared_memory(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                           const char* what) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return resource_exhausted(
          fmt::format("cannot write {} bytes of the {}: {}", bytes.size(), what,
                      written < 0 ? std::strerror(errno) : "nothing was written"));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Result<FileDescriptor> read_only_descriptor(int fd) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  FileDescriptor reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader.valid()) {
    return unavailable(fmt::format("{}: cannot open it read-only: {}", path, std::strerror(errno)));
  }
  return reader;
}

Status seal_shared_memory(int fd, const char* what) {
  if (fcntl(fd, F_ADD_SEALS, kSeals) == 0) return {};
  return internal_error(fmt::format("cannot seal the {}: {}", what, std::strerror(errno)));
}

Status check_sealed(int fd, const char* what) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && (seals & kSeals) == kSeals) return {};
  return invalid_argument(fmt::format("{}: the memory is not sealed", what));
}

Status seal_against_new_writers(int fd, const char* what) {
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) return {};
  return unsupported(
      fmt::format("cannot seal the {} against new writers: {}", what, std::strerror(errno)));
}

Result<std::size_t> shared_memory_size(int fd, const char* what) {
  struct stat status{};
  if (fstat(fd, &status) == 0) return static_cast<std::size_t>(status.st_size);
  return unavailable(fmt::format("{}: {}", what, std::strerror(errno)));
}

void Unmap::operator()(const void* data) const { munmap(const_cast<void*>(data), bytes); }

Result<MemoryMapping> map_memory(int fd, std::size_t bytes, MemoryAccess access, const char* what) {
  const int protection = access == MemoryAccess::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("cannot map {} bytes of the {}: {}", bytes, what, std::strerror(errno)));
  }
  return MemoryMapping(static_cast<std::byte*>(data), Unmap{bytes});
}

// Shared by all that read the memory.
Result<std::shared_ptr<const std::byte>> map_shared_memory(int fd, std::size_t bytes,
                                                           const char* what) {
  ASSIGN_OR_RETURN(MemoryMapping mapping, map_memory(fd, bytes, MemoryAccess::kRead, what));
  // Shared by all that read the memory.
  return std::shared_ptr<const std::byte>(std::move(mapping));
}

}  // namespace sluice
