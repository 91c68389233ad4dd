#include "device/cpu/host_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/control_groups.h"
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
  std::string_view limit;
  std::string_view usage;
  std::string_view inactive_key;  // page cache that the kernel reclaims first
};
constexpr ControlGroupFiles kUnifiedFiles{"memory.max", "memory.current", "inactive_file "};
constexpr ControlGroupFiles kOldFiles{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                      "total_inactive_file "};

void apply_control_groups(const std::string& root, MemoryInfo& info) {
  for (const ControlGroupFolder& folder : control_group_folders(root, "memory")) {
    const ControlGroupFiles& files = folder.unified ? kUnifiedFiles : kOldFiles;
    const auto limit = number_in(folder.path + std::string(files.limit));
    const auto usage = number_in(folder.path + std::string(files.usage));
    if (!limit || !usage) continue;
    const auto stat = read_text(folder.path + "memory.stat");
    const std::int64_t inactive =
        stat ? number_after(*stat, files.inactive_key).value_or(0) : std::int64_t{0};
    const std::int64_t left = std::max<std::int64_t>(0, *limit - (*usage - inactive));
    info.total_bytes = std::min(info.total_bytes, *limit);
    info.free_bytes = std::min(info.free_bytes, left);
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
