#include "offload/tier_secret.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/new_file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

Status make_secret(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) {
    return unavailable(fmt::format("{}: cannot be made: {}", folder.string(), problem.message()));
  }
  HmacKey secret{};
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    return unavailable(fmt::format("no random bytes: {}", std::strerror(errno)));
  }
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(path, 0600));
  RETURN_IF_ERROR(file.write(secret));
  return file.commit();
}

}  // namespace

std::string default_secret_path() {
  const auto folder = [](const char* variable) -> std::string {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value == '/' ? value : "";
  };
  if (const std::string state = folder("XDG_STATE_HOME"); !state.empty()) {
    return state + "/sluice/kv-secret";
  }
  const std::string home = folder("HOME");
  return home.empty() ? "" : home + "/.local/state/sluice/kv-secret";
}

Result<HmacKey> load_tier_secret(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) RETURN_IF_ERROR(make_secret(path));
  return read_tier_secret(path);
}

Result<HmacKey> read_tier_secret(const std::string& path) {
  ASSIGN_OR_RETURN(const OpenedFile file, open_for_reading(path));
  struct stat facts {};
  const bool private_file = ::fstat(file.fd.get(), &facts) == 0 && facts.st_uid == ::geteuid() &&
                            (facts.st_mode & 077U) == 0;
  if (!private_file) {
    return invalid_argument(fmt::format(
        "{}: the secret must be this user's and readable by no other; run: chmod 600", path));
  }
  HmacKey secret{};
  if (file.size != secret.size() ||
      ::read(file.fd.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return invalid_argument(
        fmt::format("{}: has {} bytes, a secret has {}; remove it to get a new one (what is kept "
                    "under the old one is lost)",
                    path, file.size, secret.size()));
  }
  return secret;
}

}  // namespace sluice
