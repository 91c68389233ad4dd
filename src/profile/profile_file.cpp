#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <system_error>

#include "base/cache_folder.h"
#include "base/file.h"
#include "base/new_file.h"
#include "base/sha256.h"
#include "profile/machine_profile.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{8} << 20;

Error write_error(const std::string& path, int code) {
  return unavailable(fmt::format("{}: cannot be written: {}", path,
                                 std::error_code(code, std::generic_category()).message()));
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
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(path));
  const std::string text = profile_to_json(profile);
  RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
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
