// The open files of a segment (page_format.h).
// Functions; any thread. Errors name the file and the system's reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

struct Segment {
  FileDescriptor pages;    // with O_DIRECT, where it is there
  FileDescriptor records;  // header and records, without it
  bool direct = false;     // of `pages`
};
// Shared: a move under way keeps the files of a segment that is dropped meanwhile.
using SegmentPtr = std::shared_ptr<const Segment>;
inline SegmentPtr share(Segment segment) {
  return std::make_shared<const Segment>(std::move(segment));  // shared, as above
}

// `flags`: of open(2), beside O_RDWR. `direct`: whether to try O_DIRECT.
Result<Segment> open_segment(const std::string& path, int flags, bool direct);

// The size of segments of a folder of `max_bytes`: about an eighth, 4 to 256 MiB. Another model
// that uses the folder later takes the room of whole segments. A power of two, so that few changes
// of max_bytes change it: segments of another size are made again.
std::uint64_t segment_bytes_for(std::uint64_t max_bytes);

// Makes room on the disk for a file of this size. Where the filesystem cannot reserve room, pages
// are reserved as they are written. False leaves the cause in errno.
bool reserve_file(const Segment& segment, std::uint64_t bytes);

// Whether the file was cut before `offset`, so that no later read up to there succeeds.
bool ends_before(const Segment& segment, std::uint64_t offset);

// Whether an open file has no name any more.
bool is_removed(const FileDescriptor& file);

// "PATH: WHAT: the reason in errno".
Error file_error(const std::string& what, const std::string& path);

}  // namespace sluice
