#include "offload/tier_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "offload/page_format.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

Error folder_error(const std::string& path, const char* what) {
  return unavailable(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

// Whether segment_name() may have made it.
bool has_segment_name(std::string_view name) {
  constexpr std::size_t kIdentity = 16;
  constexpr std::size_t kDigits = 6;
  if (name.size() < kIdentity + 1 + kDigits + kSegmentSuffix.size() || name[kIdentity] != '-' ||
      !name.ends_with(kSegmentSuffix)) {
    return false;
  }
  name.remove_suffix(kSegmentSuffix.size());
  return name.substr(0, kIdentity).find_first_not_of("0123456789abcdef") == name.npos &&
         name.substr(kIdentity + 1).find_first_not_of("0123456789") == name.npos;
}

}  // namespace

Status check_room(const std::string& folder, std::uint64_t bytes, std::uint64_t left) {
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return {};
  const std::uint64_t free = disk.f_bavail * disk.f_frsize;
  if (free >= bytes + left) return {};
  return resource_exhausted(fmt::format(
      "the filesystem has {:.1f} MiB free, and a new file needs {:.1f} MiB, its {:.1f} MiB and the "
      "{:.1f} MiB that free=SIZE leaves; make room, or give --kv-disk a smaller SIZE or free=SIZE",
      mib(free), mib(bytes + left), mib(bytes), mib(left)));
}

std::string segment_name(std::string_view prefix, std::size_t number) {
  return fmt::format("{}{:06}{}", prefix, number, kSegmentSuffix);
}

bool is_segment(const std::string& path) {
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  if (has_segment_name(fs::path(path).filename().string())) return true;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, kSegmentMagic.size()> bytes{};
  return file.valid() &&
         ::pread(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
         std::string_view(bytes.data(), bytes.size()) == kSegmentMagic;
}

Result<FileDescriptor> lock_tier_folder(const std::string& folder) {
  std::error_code problem;
  fs::create_directories(fs::path(folder).parent_path(), problem);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return folder_error(folder, "cannot be made");
  }
  struct stat facts{};
  if (::stat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    return invalid_argument(folder + ": is no folder");
  }
  if (facts.st_uid != ::geteuid() || (facts.st_mode & 022U) != 0) {
    return invalid_argument(folder +
                            ": must be this user's and writable by no other; run: chmod 700");
  }
  const std::string path = folder + "/lock";
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return folder_error(path, "cannot be opened");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return resource_exhausted(folder +
                              ": another process has it; give each server a folder of its own");
  }
  return lock;
}

Result<std::vector<TierContents>> list_tier_folder(const std::string& folder) {
  std::error_code problem;
  fs::directory_iterator entries(folder, problem);
  if (problem) return not_found(fmt::format("{}: {}", folder, problem.message()));
  std::vector<TierContents> all;
  for (const fs::directory_entry& entry : entries) {
    if (entry.path().extension() != kSegmentSuffix || !is_segment(entry.path())) continue;
    struct stat facts{};
    if (::stat(entry.path().c_str(), &facts) != 0) continue;
    const std::string name = entry.path().filename().string();
    const std::string identity = name.substr(0, name.rfind('-'));
    auto found = std::ranges::find(all, identity, &TierContents::identity);
    if (found == all.end()) found = all.insert(all.end(), {identity, 0, 0, 0});
    ++found->segments;
    found->bytes += static_cast<std::uint64_t>(facts.st_size);
    found->written = std::max<std::int64_t>(found->written, facts.st_mtime);
  }
  std::ranges::sort(all, std::ranges::greater(), &TierContents::written);
  return all;
}

void remove_other_segments(const std::string& folder, std::string_view prefix, std::uint64_t more,
                           std::uint64_t max_bytes) {
  struct Other {
    fs::file_time_type time;
    fs::path path;
    std::uint64_t bytes = 0;
  };
  std::vector<Other> others;
  std::uint64_t total = more;
  std::error_code ignored;
  fs::directory_iterator entries(folder, ignored);
  for (; !ignored && entries != fs::directory_iterator(); entries.increment(ignored)) {
    const fs::path& path = entries->path();
    if (path.extension() != kSegmentSuffix || !is_segment(path.string())) continue;
    std::error_code unknown;
    const std::uint64_t bytes = entries->file_size(unknown);
    const fs::file_time_type time = entries->last_write_time(unknown);
    if (unknown) continue;
    total += bytes;
    if (!path.filename().string().starts_with(prefix)) others.push_back({time, path, bytes});
  }
  std::ranges::sort(others, {}, &Other::time);
  for (const Other& other : others) {
    if (total <= max_bytes) return;
    log_info(other.path.string() + ": removed, its room is needed");
    if (fs::remove(other.path, ignored)) total -= other.bytes;
  }
}

void remove_segments_after(const std::string& folder, std::string_view prefix,
                           std::string_view last) {
  std::error_code problem;
  fs::directory_iterator entries(folder, problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    const std::string name = entries->path().filename().string();
    if (!name.starts_with(prefix) || name.size() != last.size() || name <= last) continue;
    if (is_segment(entries->path().string())) ::unlink(entries->path().c_str());
  }
}

Result<std::uint64_t> clear_tier_folder(const std::string& folder) {
  if (::access(folder.c_str(), F_OK) != 0) return folder_error(folder, "cannot be opened");
  ASSIGN_OR_RETURN([[maybe_unused]] const FileDescriptor lock, lock_tier_folder(folder));
  std::uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool answer = name.ends_with(kAnswerSuffix) || name.ends_with(kAnswerPartSuffix);
    const bool segment = entry.path().extension() == kSegmentSuffix && is_segment(entry.path());
    if (!answer && !segment) continue;
    std::error_code problem;
    const std::uint64_t size = entry.file_size(problem);
    if (!fs::remove(entry.path(), problem) || problem) {
      return unavailable(
          fmt::format("{}: cannot be removed: {}", entry.path().string(), problem.message()));
    }
    bytes += size;
  }
  return bytes;
}

}  // namespace sluice
