#include "base/cache_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace sluice {

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return (std::filesystem::path(cache) / "sluice").string();
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return (std::filesystem::path(home) / ".cache" / "sluice").string();
  }
  return {};
}

Result<std::string> private_cache_folder(std::string_view name) {
  const std::string parent = cache_folder();
  if (parent.empty()) return not_found("neither HOME nor XDG_CACHE_HOME names a folder");
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) return unavailable(fmt::format("{}: cannot be made: {}", parent, error.message()));
  std::string folder = fmt::format("{}/{}", parent, name);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return unavailable(
        fmt::format("{}: cannot be made: {}", folder, std::generic_category().message(errno)));
  }
  struct stat info{};
  if (lstat(folder.c_str(), &info) != 0) {
    return unavailable(
        fmt::format("{}: cannot stat: {}", folder, std::generic_category().message(errno)));
  }
  const bool is_private = S_ISDIR(info.st_mode) && (info.st_mode & 0777) == 0700;
  if (!is_private || info.st_uid != geteuid()) {
    return invalid_argument(
        fmt::format("{}: must be a folder of this user with mode 0700; remove it", folder));
  }
  return folder;
}

Result<OpenedFile> open_own_file(const std::string& path) {
  ASSIGN_OR_RETURN(OpenedFile file, open_for_reading(path));
  struct stat info{};
  if (fstat(file.fd.get(), &info) != 0) {
    return unavailable(
        fmt::format("{}: cannot stat: {}", path, std::generic_category().message(errno)));
  }
  if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return invalid_argument(path + ": belongs to another user, or others may write it; remove it");
  }
  return file;
}

}  // namespace sluice
