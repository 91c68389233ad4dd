#include "base/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sluice {

Result<FileDescriptor> create_shared_memory(const std::string& name, std::size_t bytes) {
  FileDescriptor fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return resource_exhausted(fmt::format("cannot create {} bytes of shared memory for {}: {}",
                                          bytes, name, std::strerror(errno)));
  }
  return fd;
}

Result<FileDescriptor> read_only_descriptor(int fd) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  FileDescriptor reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader.valid()) {
    return unavailable(fmt::format("{}: cannot open it read-only: {}", path, std::strerror(errno)));
  }
  return reader;
}

}  // namespace sluice
