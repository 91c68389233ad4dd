// Whole reads and writes at a place of a file. False leaves the cause in errno; a file that is too
// short for a read gives EIO. FileIo is the same as an object, which tests replace to make a disk
// slow or faulty.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

bool write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset);
bool read_at(int fd, std::span<std::byte> bytes, std::uint64_t offset);

class FileIo {
 public:
  virtual ~FileIo() = default;
  virtual bool write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) const {
    return write_at(fd, bytes, offset);
  }
  // Before each read, also of a ReadQueue, which does not call read(). False, with the cause in
  // errno: the read fails.
  virtual bool admit_read(int fd, std::uint64_t offset) const {
    static_cast<void>(fd);
    static_cast<void>(offset);
    return true;
  }
  virtual bool read(int fd, std::span<std::byte> bytes, std::uint64_t offset) const {
    return admit_read(fd, offset) && read_at(fd, bytes, offset);
  }
};

}  // namespace sluice
