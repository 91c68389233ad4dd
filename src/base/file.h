// Files: an owned descriptor, whole-file reads with a size limit, writes, read-only mappings.
// Every error names the path and the system's reason. Only regular files are accepted, so that a
// pipe or a device given for a file is refused instead of blocking.
// Threads: objects are not synchronised; a mapping's bytes may be read from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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
  // Gives up ownership.
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

// The whole file as bytes; refuses files larger than `max_bytes` before reading them.
Result<std::string> read_file(const std::string& path, std::uint64_t max_bytes);

// Makes the file, or replaces what is in it. The error is "cannot write PATH".
Status write_file(const std::string& path, std::string_view text);

// The last name of a directory's path, with "." and a slash at the end resolved; empty for the
// root.
std::string directory_name(const std::string& path);

// A whole file mapped read-only. Move-only; the bytes live as long as the object, and moving it
// does not move them. An empty file gives an empty mapping. If another process truncates the file
// meanwhile, reading beyond its new end raises SIGBUS, as with every mapping.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  // Of a file that is open already; `path` names it in errors.
  static Result<MappedFile> map(const OpenedFile& file, const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile() { unmap(); }

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  void unmap();

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace sluice
