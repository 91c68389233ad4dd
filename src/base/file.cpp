#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "base/check.h"

namespace sluice {
namespace {

Error system_error(const std::string& path, std::string_view action, int number) {
  // generic_category is thread-safe, strerror is not.
  std::string message =
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(number));
  switch (number) {
    case ENOENT:
    case ENOTDIR: return not_found(std::move(message));
    case ENOMEM:
    case EMFILE:
    case ENFILE: return resource_exhausted(std::move(message));
    case EIO: return unavailable(std::move(message));
    default: return invalid_argument(std::move(message));
  }
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

void FileDescriptor::close() {
  // The result is ignored: Linux frees the descriptor even after EINTR or EIO.
  if (fd_ >= 0) static_cast<void>(::close(release()));
}

Result<OpenedFile> open_for_reading(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return invalid_argument("file name contains a NUL byte; give a path without one");
  }
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It has no effect on regular files.
  OpenedFile file{FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  if (!file.fd.valid()) return system_error(path, "open", errno);
  struct stat info{};
  if (fstat(file.fd.get(), &info) != 0) return system_error(path, "stat", errno);
  if (S_ISDIR(info.st_mode)) return invalid_argument(path + ": is a directory; expected a file");
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + ": not a regular file");
  file.size = static_cast<std::uint64_t>(info.st_size);
  return file;
}

Result<std::string> read_file(const std::string& path, std::uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const OpenedFile file, open_for_reading(path));
  if (file.size > max_bytes) {
    return invalid_argument(
        fmt::format("{}: {} bytes, more than the limit of {} bytes", path, file.size, max_bytes));
  }
  // Files under /proc report a size of 0 but have content. So read until the end of the file, and
  // never beyond the limit.
  std::string text(static_cast<std::size_t>(file.size), '\0');
  std::size_t used = 0;
  while (true) {
    if (used == text.size()) {
      char extra = 0;
      const ssize_t n = ::read(file.fd.get(), &extra, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error(path, "read", errno);
      if (n == 0) return text;
      if (used + 1 > max_bytes) {
        return invalid_argument(
            fmt::format("{}: more than the limit of {} bytes", path, max_bytes));
      }
      text.resize(std::max<std::size_t>(4096, 2 * used));
      text[used++] = extra;
      if (text.size() > max_bytes) text.resize(static_cast<std::size_t>(max_bytes));
      continue;
    }
    const ssize_t n = ::read(file.fd.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "read", errno);
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  text.resize(used);
  return text;
}

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  if (!out.flush()) return unavailable("cannot write " + path);
  return {};
}

std::string directory_name(const std::string& path) {
  std::error_code ignored;
  const auto whole = std::filesystem::absolute(path, ignored).lexically_normal();
  return whole.has_filename() ? whole.filename() : whole.parent_path().filename();
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(const OpenedFile file, open_for_reading(path));
  return map(file, path);
}

Result<MappedFile> MappedFile::map(const OpenedFile& file, const std::string& path) {
  if (file.size == 0) return MappedFile();
  if (file.size > std::numeric_limits<std::size_t>::max()) {
    return resource_exhausted(path + ": larger than the address space");
  }
  const auto size = static_cast<std::size_t>(file.size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "map", errno);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    guard_ = std::move(other.guard_);
  }
  return *this;
}

void MappedFile::unmap() {
  if (data_ == nullptr) return;
  guard_ = {};
  CHECK(munmap(const_cast<std::byte*>(data_), size_) == 0);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace sluice
