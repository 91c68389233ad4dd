#include "checkpoint/checkpoint_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/shared_memory.h"

namespace sluice {

Result<CheckpointFile> CheckpointFile::open(const std::string& path) {
  CheckpointFile result;
  result.path_ = path;
  ASSIGN_OR_RETURN(result.file_, open_for_reading(path));
  ASSIGN_OR_RETURN(result.mapping_, MappedFile::map(result.file_, path));
  return result;
}

Result<CheckpointFile> CheckpointFile::make(const std::string& name, std::size_t bytes,
                                            FunctionRef<void(std::span<std::byte>)> write) {
  CHECK(bytes > 0);
  ASSIGN_OR_RETURN(FileDescriptor fd, create_shared_memory("sluice-weights", bytes));
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("{}: cannot map {} bytes: {}", name, bytes, std::strerror(errno)));
  }
  write({static_cast<std::byte*>(data), bytes});
  munmap(data, bytes);
  CheckpointFile result;
  result.path_ = name;
  result.file_ = {std::move(fd), bytes};
  ASSIGN_OR_RETURN(result.mapping_, MappedFile::map(result.file_, name));
  result.made_ = true;
  return result;
}

void CheckpointFile::set_header(std::size_t begin, std::size_t end) {
  CHECK(begin <= end && end <= mapping_.size());
  header_begin_ = begin;
  header_end_ = end;
}

std::span<const std::byte> CheckpointFile::range(std::uint64_t offset, std::uint64_t bytes) const {
  CHECK(offset <= mapping_.size() && bytes <= mapping_.size() - offset);
  return mapping_.bytes().subspan(static_cast<std::size_t>(offset),
                                  static_cast<std::size_t>(bytes));
}

}  // namespace sluice
