#include "device/cpu/host_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/file.h"

namespace sluice {
namespace {

// Files of proc and sys are small.
Result<std::string> read_text(const std::string& path) { return read_file(path, 1 << 20); }

// The number that follows `key` and blanks, e.g. "MemAvailable:   123 kB".
std::optional<std::int64_t> number_after(std::string_view text, std::string_view key) {
  std::size_t at = 0;
  while ((at = text.find(key, at)) != std::string_view::npos) {
    if (at == 0 || text[at - 1] == '\n') break;
    at += key.size();
  }
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(at + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (code != std::errc() || end == rest.data()) return std::nullopt;
  return value;
}

// A file with one number; "max" and unreadable files mean no limit.
std::optional<std::int64_t> number_in(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  return number_after(*text, "");
}

struct ControlGroupFiles {
  std::string mount;  // below root
  std::string_view limit;
  std::string_view usage;
  std::string_view inactive_key;  // page cache that the kernel reclaims first
};

void apply_limits(const std::string& root, const ControlGroupFiles& files, std::string group,
                  MemoryInfo& info) {
  while (true) {
    const std::string folder = root + files.mount + group + "/";
    const auto limit = number_in(folder + std::string(files.limit));
    const auto usage = number_in(folder + std::string(files.usage));
    if (limit && usage) {
      const auto stat = read_text(folder + "memory.stat");
      const std::int64_t inactive =
          stat ? number_after(*stat, files.inactive_key).value_or(0) : std::int64_t{0};
      const std::int64_t left = std::max<std::int64_t>(0, *limit - (*usage - inactive));
      info.total_bytes = std::min(info.total_bytes, *limit);
      info.free_bytes = std::min(info.free_bytes, left);
    }
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

void apply_control_groups(const std::string& root, MemoryInfo& info) {
  const auto text = read_text(root + "proc/self/cgroup");
  if (!text) return;
  std::string_view rest = *text;
  while (!rest.empty()) {  // lines "hierarchy:controllers:path"
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    std::string group(line.substr(second + 1));
    if (group == "/") group.clear();
    if (controllers == ",,") {
      apply_limits(root, {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "}, group,
                   info);
    } else if (controllers.find(",memory,") != std::string::npos) {
      apply_limits(root,
                   {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                    "total_inactive_file "},
                   group, info);
    }
  }
}

}  // namespace

Result<MemoryInfo> read_host_memory(const std::string& root) {
  const std::string path = root + "proc/meminfo";
  const auto text = read_text(path);
  if (!text) return unavailable(path + ": cannot be read");
  const auto total = number_after(*text, "MemTotal:");
  const auto available = number_after(*text, "MemAvailable:");
  if (!total || !available) {
    return unavailable(path + ": MemTotal or MemAvailable is missing");
  }
  MemoryInfo info{*total * 1024, *available * 1024};
  apply_control_groups(root, info);
  return info;
}

}  // namespace sluice
