// NewFile: a file that appears whole or not at all. Bytes go to PATH.part in the same folder;
// commit() flushes them to the disk and renames the file to PATH, in place of an older one.
// A lock on PATH.part keeps a second writer out, in other processes too. A process that is killed
// leaves PATH.part behind unlocked, and the next writer of PATH uses it again.
// Errors name the path and the system's reason; PATH is then as it was.
// Owner: the caller; without commit() the destructor removes PATH.part. Threads: one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

class NewFile {
 public:
  // kResourceExhausted while another process writes it.
  static Result<NewFile> create(const std::string& path, mode_t mode = 0644);

  NewFile(NewFile&& other) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  NewFile(std::string path, std::string part, FileDescriptor fd)
      : path_(std::move(path)), part_(std::move(part)), fd_(std::move(fd)) {}

  std::string path_;
  std::string part_;
  FileDescriptor fd_;
};

}  // namespace sluice
