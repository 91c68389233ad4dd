#include "offload/segment_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace sluice {

Error file_error(const std::string& what, const std::string& path) {
  return unavailable(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

Result<Segment> open_segment(const std::string& path, int flags, bool direct) {
  Segment segment;
  segment.records = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (!segment.records.valid()) return file_error("cannot be opened", path);
  if (direct) {
    segment.pages = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT));
    segment.direct = segment.pages.valid();
  }
  if (!segment.pages.valid()) {
    segment.pages = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  if (!segment.pages.valid()) return file_error("cannot be opened", path);
  return segment;
}

std::uint64_t segment_bytes_for(std::uint64_t max_bytes) {
  constexpr std::uint64_t kLeast = std::uint64_t{4} << 20;  // headers are small beside it
  constexpr std::uint64_t kMost = std::uint64_t{256} << 20;
  return std::clamp(std::bit_floor(max_bytes / 8), kLeast, kMost);
}

bool reserve_file(const Segment& segment, std::uint64_t bytes) {
  const int fd = segment.records.get();
  return ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ||
         (errno == EOPNOTSUPP && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
}

bool ends_before(const Segment& segment, std::uint64_t offset) {
  struct stat facts{};
  return ::fstat(segment.records.get(), &facts) == 0 &&
         static_cast<std::uint64_t>(facts.st_size) < offset;
}

bool is_removed(const FileDescriptor& file) {
  struct stat facts{};
  return ::fstat(file.get(), &facts) == 0 && facts.st_nlink == 0;
}

}  // namespace sluice
