#include "offload/tier_verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"
#include "offload/file_io.h"
#include "offload/tier_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The number in "IDENTITY-NUMBER.segment".
std::optional<std::uint64_t> number_of(const std::string& stem) {
  const std::string digits = stem.substr(stem.rfind('-') + 1);
  std::uint64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stopped != end || number > (1U << 30)) return std::nullopt;
  return number;
}

Result<SegmentCounts> check_file(const fs::path& path, const HmacKey& secret) {
  const auto number = number_of(path.stem().string());
  if (!number) return invalid_argument("has a name without a number");
  ASSIGN_OR_RETURN(const OpenedFile file, open_for_reading(path.string()));
  const int fd = file.fd.get();
  const auto read = [fd](std::span<std::byte> bytes, std::uint64_t offset) {
    return read_at(fd, bytes, offset);
  };
  return check_segment(file.size, read, *number, secret);
}

void add(SegmentCounts& sum, const SegmentCounts& more) {
  sum.good += more.good;
  sum.bad += more.bad;
  sum.torn += more.torn;
  sum.empty += more.empty;
}

}  // namespace

Result<std::vector<VerifiedContents>> verify_tier_folder(const std::string& folder,
                                                         const HmacKey& secret) {
  if (::access(folder.c_str(), F_OK) != 0) {
    return not_found(fmt::format("{}: {}", folder, std::strerror(errno)));
  }
  ASSIGN_OR_RETURN([[maybe_unused]] const FileDescriptor lock, lock_tier_folder(folder));
  std::vector<fs::path> paths;
  std::error_code problem;
  fs::directory_iterator entries(folder, problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    const fs::path& path = entries->path();
    if (path.extension() == kSegmentSuffix && is_segment(path.string())) paths.push_back(path);
  }
  if (problem) return unavailable(fmt::format("{}: {}", folder, problem.message()));
  std::ranges::sort(paths);
  std::map<std::string, VerifiedContents> found;
  for (const fs::path& path : paths) {
    const std::string stem = path.stem().string();
    VerifiedContents& contents = found[stem.substr(0, stem.rfind('-'))];
    ++contents.segments;
    if (const auto counts = check_file(path, secret)) {
      add(contents.pages, *counts);
    } else {
      contents.unreadable.push_back(fmt::format("{}: {}", path.string(), counts.error().message));
    }
  }
  std::vector<VerifiedContents> all;
  for (auto& [identity, contents] : found) {
    contents.identity = identity;
    all.push_back(std::move(contents));
  }
  return all;
}

}  // namespace sluice
