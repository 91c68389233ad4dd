#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/sha256.h"
#include "profile/machine_profile.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{8} << 20;

Error write_error(const std::string& path, int code) {
  return unavailable(fmt::format("{}: cannot be written: {}", path,
                                 std::error_code(code, std::generic_category()).message()));
}

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return write_error(path, errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::filesystem::path(cache) / "sluice";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::filesystem::path(home) / ".cache" / "sluice";
  }
  return {};
}

}  // namespace

Result<MachineProfile> load_profile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_profile(text, path);
}

Status save_profile(const MachineProfile& profile, const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return write_error(folder.string(), error.value());
  const std::string unfinished = fmt::format("{}.{}.part", path, ::getpid());
  FileDescriptor fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return write_error(unfinished, errno);
  Status status = write_all(fd.get(), profile_to_json(profile), unfinished);
  fd.close();
  if (status && std::rename(unfinished.c_str(), path.c_str()) != 0) {
    status = write_error(path, errno);
  }
  if (!status) std::filesystem::remove(unfinished, error);
  return status;
}

std::string default_profile_path(const ProfileIdentity& identity) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  const std::string key =
      fmt::format("{}\n{}\n{}\n{}\n{}", identity.model_digest, identity.dtype, identity.device,
                  identity.device_description, identity.threads);
  return (folder / "profiles" / (to_hex(sha256(key)).substr(0, 32) + ".json")).string();
}

}  // namespace sluice
