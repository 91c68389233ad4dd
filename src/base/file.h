// Files: an owned descriptor, whole-file reads with a size limit, writes, read-only mappings.
// Every error names the path and the system's reason. Only regular files are accepted: opening a
// pipe or a device is an error and never blocks.
// Threads: objects are not synchronised; any thread may read a mapping's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/mapping_guard.h"
#include "base/result.h"

namespace sluice {

// Owns a POSIX file descriptor; closes it on destruction. -1 means none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Releases ownership to the caller.
  int release() { return std::exchange(fd_, -1); }
  void close();

 private:
  int fd_ = -1;
};

struct OpenedFile {
  FileDescriptor fd;
  std::uint64_t size = 0;  // bytes, at the time of opening
};

// Opens a regular file for reading. kNotFound when the path does not exist.
Result<OpenedFile> open_for_reading(const std::string& path);

// Returns the whole file. A file larger than `max_bytes` is an error.
Result<std::string> read_file(const std::string& path, std::uint64_t max_bytes);

// Creates the file or replaces its content. The error is "cannot write PATH".
Status write_file(const std::string& path, std::string_view text);

// The last component of a directory's path, without a trailing slash or "."; empty for the root
// directory.
std::string directory_name(const std::string& path);

// A whole file mapped read-only. Move-only; the mapping lives as long as the object, and moving
// the object keeps the addresses. An empty file gives an empty mapping. If another process
// truncates the file, bytes beyond its new end read as zero and faulted() returns true.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  // Maps a file that is already open; `path` names it in errors.
  static Result<MappedFile> map(const OpenedFile& file, const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        guard_(std::move(other.guard_)) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile() { unmap(); }

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // Whether bytes were missing when they were read.
  bool faulted() const { return guard_.faulted(); }

 private:
  MappedFile(const std::byte* data, std::size_t size)
      : data_(data), size_(size), guard_(data, size) {}
  void unmap();

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  MappingGuard guard_;
};

}  // namespace sluice
