#include "offload/tier_secret.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

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

// The bytes of a file of this user that no other user can read.
Result<std::string> read_private(const std::string& path, std::string_view what) {
  ASSIGN_OR_RETURN(const OpenedFile file, open_for_reading(path));
  struct stat facts{};
  const bool private_file = ::fstat(file.fd.get(), &facts) == 0 && facts.st_uid == ::geteuid() &&
                            (facts.st_mode & 077U) == 0;
  if (!private_file) {
    return invalid_argument(fmt::format(
        "{}: {} must be this user's and readable by no other; run: chmod 600", path, what));
  }
  constexpr std::size_t kMost = 100;  // longer than every secret and key
  std::string bytes(kMost, '\0');
  const ssize_t got = ::read(file.fd.get(), bytes.data(), bytes.size());
  if (got < 0) return unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
  bytes.resize(static_cast<std::size_t>(got));
  return bytes;
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
  ASSIGN_OR_RETURN(const std::string bytes, read_private(path, "the secret"));
  HmacKey secret{};
  if (bytes.size() != secret.size()) {
    return invalid_argument(
        fmt::format("{}: has {} bytes, a secret has {}; remove it to get a new one (what is kept "
                    "under the old one is lost)",
                    path, bytes.size(), secret.size()));
  }
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

Result<HmacKey> read_tier_key(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, read_private(path, "the key"));
  if (bytes.size() == 65 && bytes.back() == '\n') bytes.pop_back();
  HmacKey key{};
  bool good = bytes.size() == key.size() || bytes.size() == 2 * key.size();
  if (bytes.size() == key.size()) {
    std::memcpy(key.data(), bytes.data(), key.size());
  } else {
    for (std::size_t i = 0; good && i < key.size(); ++i) {
      unsigned value = 0;
      const char* const digits = bytes.data() + 2 * i;
      const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
      good = error == std::errc() && end == digits + 2;
      key[i] = static_cast<std::byte>(value);
    }
  }
  if (!good) {
    return invalid_argument(fmt::format(
        "{}: expected 32 bytes or 64 hexadecimal digits; run: openssl rand -hex 32", path));
  }
  return derive_key(key, "sluice/kv-disk-key/1");
}

}  // namespace sluice
