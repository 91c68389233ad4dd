#include "sandbox/control_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/file.h"

namespace sluice {
namespace {

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

// Creates the group of one controller, sets the limit and adds the process. Returns its folder.
Result<std::string> limit_process(pid_t process, const std::string& controller, Layer layer,
                                  const SandboxOptions& options,
                                  std::vector<std::string>& folders) {
  ASSIGN_OR_RETURN(const Place place, find_place(controller));
  std::string folder = fmt::format("{}/sluice-{}", place.folder, process);
  if (mkdir(folder.c_str(), 0700) == 0) {
    folders.push_back(folder);
  } else if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
    return unsupported(fmt::format("cannot create {}: {}", folder, std::strerror(errno)));
  }
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
