// WeightWatch: notices that a weight file changed under the model that maps it. A truncated file
// would end the process when a missing page is read; here the page reads as zeros, and the step
// that read it fails, so that no wrong token leaves (MappingGuard). A file that is written in place
// is noticed within kInterval. Replacing a file by renaming another onto it is harmless: the
// mapping keeps the old one.
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

  // kUnavailable, with the file and what to do, when a page was missing in what ran since the last
  // call. Costs a load for each file.
  Status check_pages() const;
  // The same when a file changed since add(). Looks at the files at most once every kInterval.
  Status check_files(TimePoint now);
  // When check_files() looks again; nothing without files.
  std::optional<TimePoint> next_check() const;

 private:
  struct File {
    std::string path;
    FileDescriptor fd;
    struct stat before{};
    MappingGuard guard;
  };

  TimePoint last_check_{};
  std::vector<File> files_;
};

}  // namespace sluice
