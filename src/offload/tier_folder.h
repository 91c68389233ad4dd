// The folder of a disk tier as a whole: its lock, what is in it, and clearing it. All of that needs
// no key; the blocks themselves do.
// Functions; any thread. Errors name the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

inline constexpr std::string_view kSegmentSuffix = ".segment";
// An answer that a stopping server has saved (server/resume_store.h).
inline constexpr std::string_view kAnswerSuffix = ".resume";
inline constexpr std::string_view kAnswerPartSuffix = ".resume.part";  // half written

// A segment's file in the folder: the beginning is that of the segments of one identity, 16
// hexadecimal digits and "-".
std::string segment_name(std::string_view prefix, std::size_t number);

// Whether a file has the name of a segment, of whatever identity, or begins as one does: a segment
// whose beginning is damaged is one, too. Other files are never removed.
bool is_segment(const std::string& path);

// Makes the folder (mode 0700) if it is not there, and takes its lock, which lasts as long as the
// result. kInvalidArgument for a folder that others may write, kResourceExhausted while another
// process has the lock.
Result<FileDescriptor> lock_tier_folder(const std::string& folder);

// Makes room for `more` bytes within `max_bytes`: removes segments whose names do not begin with
// `prefix`, the oldest first.
void remove_other_segments(const std::string& folder, std::string_view prefix, std::uint64_t more,
                           std::uint64_t max_bytes);

// kResourceExhausted if a new file of `bytes` would leave less than `left` bytes of the filesystem
// free. A filesystem that does not say what is free has room.
Status check_room(const std::string& folder, std::uint64_t bytes, std::uint64_t left);

// Removes segments whose names begin with `prefix` and come after `last`, which has their length.
void remove_segments_after(const std::string& folder, std::string_view prefix,
                           std::string_view last);

// The segments of one identity: of one model, dtype and program. Which one it is only its own
// engine can tell.
struct TierContents {
  std::string identity;  // the beginning of the files' names
  std::int32_t segments = 0;
  std::uint64_t bytes = 0;
  std::int64_t written = 0;  // the newest change, Unix seconds
};
// The newest first. kNotFound without the folder.
Result<std::vector<TierContents>> list_tier_folder(const std::string& folder);

// Removes all segments and saved answers. Returns their bytes. Takes the lock meanwhile.
Result<std::uint64_t> clear_tier_folder(const std::string& folder);

}  // namespace sluice
