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
  std::string_view soft_limit;  // empty: there is none that slows the group down
  std::string_view usage;
  std::string_view inactive_key;  // page cache that the kernel reclaims first
};
constexpr ControlGroupFiles kUnifiedFiles{"memory.max", "memory.high", "memory.current",
                                          "inactive_file "};
constexpr ControlGroupFiles kOldFiles{"memory.limit_in_bytes", "", "memory.usage_in_bytes",
                                      "total_inactive_file "};

void apply_control_groups(const std::string& root, MemoryState& state) {
  for (const ControlGroupFolder& folder : control_group_folders(root, "memory")) {
    const ControlGroupFiles& files = folder.unified ? kUnifiedFiles : kOldFiles;
    auto limit = number_in(folder.path + std::string(files.limit));
    if (!files.soft_limit.empty()) {
      const auto soft = number_in(folder.path + std::string(files.soft_limit));
      if (soft) limit = std::min(*soft, limit.value_or(*soft));
    }
    const auto usage = number_in(folder.path + std::string(files.usage));
    if (!limit || !usage) continue;
    const auto stat = read_text(folder.path + "memory.stat");
    const std::int64_t inactive =
        stat ? number_after(*stat, files.inactive_key).value_or(0) : std::int64_t{0};
    state.total = std::min(state.total, *limit);
    state.left = std::min(state.left, *limit - (*usage - inactive));
  }
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=3838589": microseconds.
std::optional<Duration> stalled_in(const std::string& path) {
  const auto text = read_text(path);
  if (!text || !text->starts_with("some ")) return std::nullopt;
  constexpr std::string_view kKey = "total=";
  const std::size_t at = text->find(kKey);
  if (at == std::string::npos) return std::nullopt;
  const auto total = number_after(text->substr(at), kKey);
  if (!total) return std::nullopt;
  return std::chrono::microseconds(*total);
}

// The own group is the first of its hierarchy.
std::optional<Duration> stalled_time(const std::string& root) {
  for (const ControlGroupFolder& folder : control_group_folders(root, "memory")) {
    if (!folder.unified) continue;
    if (const auto own = stalled_in(folder.path + "memory.pressure")) return own;
    break;
  }
  return stalled_in(root + "proc/pressure/memory");
}

Result<MemoryState> read_limits(const std::string& root) {
  const std::string path = root + "proc/meminfo";
  const auto text = read_text(path);
  if (!text) return unavailable(path + ": cannot be read");
  const auto total = number_after(*text, "MemTotal:");
  const auto available = number_after(*text, "MemAvailable:");
  if (!total || !available) {
    return unavailable(path + ": MemTotal or MemAvailable is missing");
  }
  MemoryState state{*total * 1024, *available * 1024, {}};
  apply_control_groups(root, state);
  return state;
}

}  // namespace

Result<MemoryState> read_memory_state(const std::string& root) {
  ASSIGN_OR_RETURN(MemoryState state, read_limits(root));
  state.stalled = stalled_time(root);
  return state;
}

Result<MemoryInfo> read_host_memory(const std::string& root) {
  ASSIGN_OR_RETURN(const MemoryState state, read_limits(root));
  return MemoryInfo{state.total, std::max<std::int64_t>(state.left, 0)};
}

}  // namespace sluice
