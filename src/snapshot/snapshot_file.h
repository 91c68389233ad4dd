// SnapshotFile: a snapshot file, mapped read-only. Opening checks the head; the bytes of a section
// are hashed when they are asked for. verify() hashes whatever has not been hashed yet, so that a
// damaged byte is told wherever it lies.
//
// A file that another process truncates or overwrites meanwhile does no harm to the process:
// missing bytes read as zeros (MappingGuard). copy() hashes its own copy, which nothing can change
// any more. bytes() gives the file's own memory: an owner that writes into the file in place after
// the check changes it, so its reader must check bounds whatever it reads.
// Errors name the file and the section, and begin with "snapshot". Threads: one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "snapshot/snapshot_format.h"

namespace sluice {

class SnapshotFile {
 public:
  static Result<SnapshotFile> open(const std::string& path);
  static Result<SnapshotFile> open(const OpenedFile& file, const std::string& path);

  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return file_.size(); }
  // Open as long as this object, for mapping a section elsewhere.
  int fd() const { return fd_.get(); }
  const SnapshotTable& table() const { return table_; }

  // The section of this kind, version and key. kNotFound says in what the nearest one differs.
  Result<const SnapshotSection*> find(std::string_view kind, std::uint32_t version,
                                      const SnapshotKey& key) const;

  // The section's bytes where they lie in the mapping, hashed now unless they were before. Valid as
  // long as this object.
  Result<std::span<const std::byte>> bytes(const SnapshotSection& section);
  Result<std::vector<std::byte>> copy(const SnapshotSection& section) const;

  // The bytes that are stored for the section, padding included, where they lie in the mapping. For
  // a reader that compares each piece with its hash (SnapshotBlob::pieces) before it uses the
  // piece.
  std::span<const std::byte> unchecked_bytes(const SnapshotSection& section) const;
  // The reader has compared all pieces: verify() need not.
  void set_verified(const SnapshotSection& section) { verified_[section.blob] = true; }
  // The error of a section with a piece that differs from its hash.
  Error damaged(const SnapshotSection& section) const { return damaged(section.blob); }
  // Hashes all blobs that have not been verified: an error for each damaged one.
  std::vector<Error> find_damage();
  // The first of them.
  Status verify();

 private:
  SnapshotFile(std::string path, FileDescriptor fd, MappedFile file, SnapshotTable table);
  Error damaged(std::size_t blob) const;
  bool piece_matches(std::size_t blob, std::size_t piece) const;
  Status verify_blob(std::size_t blob);

  std::string path_;
  FileDescriptor fd_;
  MappedFile file_;
  SnapshotTable table_;
  std::vector<bool> verified_;  // by blob
};

}  // namespace sluice
