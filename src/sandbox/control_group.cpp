#include "sandbox/control_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "sluice-";
constexpr unsigned kPeriodMicroseconds = 100'000;  // of the CPU limit

// Where the groups of a controller are, and the folder of this process's own group.
struct Place {
  bool unified = false;
  std::string folder;
};

// Whether the comma-separated list has `word`.
bool lists(const std::string& text, const std::string& word) {
  return ("," + text + ",").find("," + word + ",") != std::string::npos;
}

// The path of this process's group in the tree of `controller`; "" is the unified tree.
std::string own_group(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // ID:CONTROLLERS:PATH
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : lists(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return {};
}

Result<Place> find_place(const std::string& controller) {
  std::ifstream mounts("/proc/self/mounts");
  std::string unified;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device, path, type, options;
    fields >> device >> path >> type >> options;
    if (type == "cgroup" && lists(options, controller)) {
      return Place{false, path + own_group(controller)};
    }
    if (type == "cgroup2") unified = path;
  }
  if (unified.empty()) return unsupported("no control groups are mounted");
  const std::string folder = unified + own_group("");
  std::string names;
  std::ifstream available(folder + "/cgroup.controllers");
  std::getline(available, names);
  std::replace(names.begin(), names.end(), ' ', ',');
  if (!lists(names, controller)) {
    return unsupported(
        fmt::format("{} lacks the controller {}; start with systemd-run --user -p Delegate=yes",
                    folder, controller));
  }
  return Place{true, folder};
}

// Unlike write_file, creates nothing: control files exist already.
Status write_control(const std::string& path, const std::string& value) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      write(file.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
    return unsupported(fmt::format("cannot write {} to {}: {}", value, path, std::strerror(errno)));
  }
  return {};
}

struct Setting {
  std::string file;
  std::string value;
  bool optional = false;  // swap, which not every kernel counts
};

std::vector<Setting> settings_of(Layer layer, bool unified, const SandboxOptions& options) {
  const std::string memory = fmt::format("{}", options.memory_bytes);
  const auto quota = static_cast<long>(std::lround(options.cpu_cores * kPeriodMicroseconds));
  switch (layer) {
    case Layer::kMemoryLimit:
      if (unified) return {{"memory.max", memory}, {"memory.swap.max", "0", true}};
      return {{"memory.limit_in_bytes", memory}, {"memory.memsw.limit_in_bytes", memory, true}};
    case Layer::kTaskLimit: return {{"pids.max", fmt::format("{}", options.max_tasks)}};
    default:
      if (unified) return {{"cpu.max", fmt::format("{} {}", quota, kPeriodMicroseconds)}};
      return {{"cpu.cfs_period_us", fmt::format("{}", kPeriodMicroseconds)},
              {"cpu.cfs_quota_us", fmt::format("{}", quota)}};
  }
}

// The parent of a process; nothing if it has ended, also if none has waited for it, as for the
// children of a killed server.
std::optional<pid_t> living_parent(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 2));
  char state = 'X';
  pid_t parent = 0;
  fields >> state >> parent;
  if (state == 'Z' || state == 'X') return std::nullopt;
  return parent;
}

// Removes the groups of processes that no longer exist: a server that was killed leaves them
// behind, and their names come back with the numbers of processes. False if a group may become a
// leftover yet: its process is not of this server, or its threads have not all ended, which its
// state does not say; a group that has any cannot be removed.
bool remove_leftovers(const std::string& parent) {
  bool all = true;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    pid_t process = 0;
    const char* const end = name.data() + name.size();
    const auto [at, problem] = std::from_chars(name.data() + kPrefix.size(), end, process);
    if (problem != std::errc() || at != end || process <= 0) continue;
    if (const std::optional<pid_t> starter = living_parent(process)) {
      all = all && *starter == getpid();
    } else if (rmdir(entry.path().c_str()) != 0 && errno != ENOENT) {
      all = false;
    }
  }
  return all;
}

// Creates the folder of `process`, or finds it among those made for it before.
Status make_folder(const std::string& parent, const std::string& folder,
                   std::vector<std::string>& folders) {
  if (std::ranges::find(folders, folder) != folders.end()) return {};
  // A leftover of another process with this number is empty.
  if (mkdir(folder.c_str(), 0700) != 0 &&
      (errno != EEXIST || rmdir(folder.c_str()) != 0 || mkdir(folder.c_str(), 0700) != 0)) {
    return unsupported(fmt::format("cannot create {}: {}", folder, std::strerror(errno)));
  }
  folders.push_back(folder);
  // The first process of a server cleans up after the server before, whose processes may just be
  // ending; then the next one does it again.
  static std::set<std::string> cleaned;
  if (!cleaned.contains(parent) && remove_leftovers(parent)) cleaned.insert(parent);
  return {};
}

// Creates the group of one controller, sets the limit and adds the process. Returns its folder.
Result<std::string> limit_process(pid_t process, const std::string& controller, Layer layer,
                                  const SandboxOptions& options,
                                  std::vector<std::string>& folders) {
  ASSIGN_OR_RETURN(const Place place, find_place(controller));
  std::string folder = fmt::format("{}/{}{}", place.folder, kPrefix, process);
  RETURN_IF_ERROR(make_folder(place.folder, folder, folders));
  const std::vector<Setting> settings = settings_of(layer, place.unified, options);
  if (place.unified && access((folder + "/" + settings.front().file).c_str(), F_OK) != 0) {
    RETURN_IF_ERROR(write_control(place.folder + "/cgroup.subtree_control", "+" + controller));
  }
  for (const Setting& setting : settings) {
    const Status status = write_control(folder + "/" + setting.file, setting.value);
    if (!status && !setting.optional) return status.error();
  }
  RETURN_IF_ERROR(write_control(folder + "/cgroup.procs", fmt::format("{}", process)));
  return folder;
}

}  // namespace

ControlGroup::ControlGroup(pid_t process, const SandboxOptions& options, SandboxReport& report) {
  constexpr std::pair<Layer, const char*> kControllers[] = {
      {Layer::kMemoryLimit, "memory"}, {Layer::kTaskLimit, "pids"}, {Layer::kCpuLimit, "cpu"}};
  for (const auto& [layer, controller] : kControllers) {
    if (leaves_out(options, layer)) {
      report.add(layer, false, "left out by the options");
      continue;
    }
    const Result<std::string> folder = limit_process(process, controller, layer, options, folders_);
    report.add(layer, folder.has_value(), folder ? *folder : folder.error().message);
  }
}

ControlGroup::~ControlGroup() {
  for (const std::string& folder : folders_) rmdir(folder.c_str());
}

}  // namespace sluice
