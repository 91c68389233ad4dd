// Writes snapshot files: whole or not at all (base/new_file.h), one writer of a file at a time.
// Errors begin with "snapshot" and name the file.
// Owner: the caller; the bytes of sections must stay until the file is written. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "snapshot/snapshot_file.h"
#include "snapshot/snapshot_format.h"

namespace sluice {

// A section to be written.
struct NewSection {
  std::string kind;
  std::uint32_t version = 0;
  SnapshotKey key;
  std::span<const std::byte> bytes;
};

// How to treat the sections that the file has already. A new section takes the place of one with
// the same kind, version and key.
enum class OldSections : std::uint8_t {
  kDrop,
  kKeep,         // a file that is there and cannot be read is an error
  kKeepIfSound,  // or is written anew
};

struct SnapshotWriteOptions {
  OldSections old_sections = OldSections::kDrop;
  // Old sections are dropped, the last in the file first, while more would be stored. 0: no limit.
  std::uint64_t max_bytes = 0;
  // And those that are not among the newest of their kind. 0: no limit.
  std::size_t max_per_kind = 0;
  bool for_this_user_only = false;  // mode 0600 instead of 0644
  // Called with the bytes written so far and in all.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

// Sections of one file: the new ones first, then the old ones in their order.
Status write_snapshot(const std::string& path, std::span<const NewSection> sections,
                      const SnapshotWriteOptions& options);

}  // namespace sluice
