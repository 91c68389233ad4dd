#include "base/control_groups.h"

#include <algorithm>

#include "base/file.h"

namespace sluice {
namespace {

void add_folders(const std::string& mount, bool unified, std::string group,
                 std::vector<ControlGroupFolder>& out) {
  if (group == "/") group.clear();
  while (true) {
    out.push_back({mount + group + "/", unified});
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::vector<ControlGroupFolder> control_group_folders(const std::string& root,
                                                      std::string_view controller) {
  std::vector<ControlGroupFolder> folders;
  const auto text = read_file(root + "proc/self/cgroup", 1 << 20);
  if (!text) return folders;
  const std::string wanted = "," + std::string(controller) + ",";
  const std::string mount = root + "sys/fs/cgroup";
  std::string_view rest = *text;
  while (!rest.empty()) {  // lines "hierarchy:controllers:path"
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string listed = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string group(line.substr(second + 1));
    if (listed == ",,") {
      add_folders(mount, true, group, folders);
    } else if (listed.find(wanted) != std::string::npos) {
      add_folders(mount + "/" + std::string(controller), false, group, folders);
    }
  }
  return folders;
}

}  // namespace sluice
