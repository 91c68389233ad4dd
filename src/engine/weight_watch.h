// WeightWatch: detects that a mapped weight file has changed. Without it, reading a missing page of
// a truncated file would end the process. With it, the page reads as zeros (MappingGuard), and the
// step that read it fails, so that no wrong token is reported. A file that is written in place is
// detected within kInterval. Replacing a file by renaming another one over it is harmless: the
// mapping keeps the old file.
// Owner: the model runner. Threads: the engine's thread.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/mapping_guard.h"
#include "base/result.h"

namespace sluice {

class WeightWatch {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(2);

  // Guards [data, data + bytes), a mapping of the file `path` that is open as `fd` (borrowed).
  // REQUIRES: the mapping outlives the watch.
  Status add(std::string path, int fd, const std::byte* data, std::size_t bytes);

  // Forgets the mapping that begins there, if there is one.
  void remove(const std::byte* data);

  // kUnavailable, with the file and what to do, when work since the last call has read a missing
  // page. Costs one memory load for each file.
  Status check_pages() const;
  // kUnavailable, likewise, when a file has changed since add(). Reads the files' status at most
  // once every kInterval.
  Status check_files(TimePoint now);
  // The same, and reads the files' status whenever it was read last.
  Status check_files_now(TimePoint now);
  // When check_files() reads the status again; nothing without files.
  std::optional<TimePoint> next_check() const;

 private:
  struct File {
    std::string path;
    const std::byte* data = nullptr;
    FileDescriptor fd;
    struct stat before{};
    MappingGuard guard;
  };

  TimePoint last_check_{};
  std::vector<File> files_;
};

}  // namespace sluice
