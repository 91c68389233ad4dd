// FileDigests: content hashes of whole files, remembered in a file of its own by device, inode,
// size and times, so that a file is read again only when it changed. A file whose last change is so
// recent that another one could keep its times is read every time.
// Errors name the file. Owner: a command. Threads: one.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"

namespace sluice {

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

class FileDigests {
 public:
  static constexpr std::size_t kMaxRemembered = 4096;
  // A line in the log says that a file of this size is read.
  static constexpr std::uint64_t kToldBytes = std::uint64_t{128} << 20;

  // Remembers nothing.
  FileDigests() = default;
  // Reads what `cache_path` remembers; save() writes it. A cache that is absent or damaged is
  // empty.
  explicit FileDigests(std::string cache_path);

  Result<Hash128> digest(const std::string& path);

  // Writes the cache if it has something new.
  Status save();

  // Files that digest() had to read.
  std::uint64_t files_read() const { return files_read_; }

  using Entries = std::map<FileIdentity, Hash128>;
  static std::vector<std::byte> encode(const Entries& entries);
  // Nothing where the bytes are not those of encode().
  static Entries decode(std::span<const std::byte> bytes);

 private:
  std::string cache_path_;
  Entries entries_;
  std::uint64_t files_read_ = 0;
  bool changed_ = false;
};

}  // namespace sluice
