#include "base/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace sluice {
namespace {

Error cannot_write(const std::string& path, int number) {
  return unavailable(
      fmt::format("{}: cannot be written: {}", path, std::generic_category().message(number)));
}

// Another writer may have renamed the file between our open and our lock: then what we locked is
// the finished file, no longer the one named `part`.
bool is_still_named(int fd, const std::string& part) {
  struct stat opened{};
  struct stat named{};
  return fstat(fd, &opened) == 0 && lstat(part.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

Result<NewFile> NewFile::create(const std::string& path, mode_t mode) {
  std::string part = path + ".part";
  while (true) {
    FileDescriptor fd(
        ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
    if (!fd.valid()) return cannot_write(part, errno);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return cannot_write(part, errno);
      return resource_exhausted(path +
                                ": another process is writing it; try again when it is done");
    }
    if (!is_still_named(fd.get(), part)) continue;
    if (ftruncate(fd.get(), 0) != 0 || fchmod(fd.get(), mode) != 0) {
      return cannot_write(part, errno);
    }
    return NewFile(path, std::move(part), std::move(fd));
  }
}

NewFile::~NewFile() {
  if (fd_.valid()) static_cast<void>(::unlink(part_.c_str()));
}

Status NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return cannot_write(part_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status NewFile::commit() {
  if (fsync(fd_.get()) != 0) return cannot_write(part_, errno);
  if (std::rename(part_.c_str(), path_.c_str()) != 0) return cannot_write(path_, errno);
  fd_.close();
  // The name lasts once the folder is on the disk; a file system without this loses it at worst.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const FileDescriptor parent(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.valid()) static_cast<void>(fsync(parent.get()));
  return {};
}

}  // namespace sluice
