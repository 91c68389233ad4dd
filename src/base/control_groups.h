// The control groups of this process, for reading their limits.
// Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct ControlGroupFolder {
  std::string path;      // ends in '/'
  bool unified = false;  // v2
};

// The folders of the process's groups with `controller` ("cpu", "memory"), of v1 and v2, from its
// own group up to the root. Reads proc/self/cgroup under `root` ("/" outside tests); a folder need
// not exist.
std::vector<ControlGroupFolder> control_group_folders(const std::string& root,
                                                      std::string_view controller);

}  // namespace sluice
