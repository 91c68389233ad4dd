#include "server/resume_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/sha256.h"
#include "server/resume_file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".resume";
// A file while it is written. A kill leaves it there; no call reads it.
constexpr std::string_view kPartSuffix = ".resume.part";

void add(Hmac& hmac, std::string_view text) {
  const std::uint64_t size = text.size();
  hmac.update(std::as_bytes(std::span(&size, 1)));
  hmac.update(std::as_bytes(std::span(text)));
}

Error write_error(const std::string& path) {
  return unavailable(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

std::uint64_t on_disk(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

ResumeStore::ResumeStore(std::string folder, const HmacKey& secret, const Limits& limits,
                         std::function<std::int64_t()> unix_time)
    : folder_(std::move(folder)),
      names_(derive_key(secret, "sluice/resume-names/1")),
      bodies_(derive_key(secret, "sluice/resume-bodies/1")),
      contents_(derive_key(secret, "sluice/resume-contents/1")),
      limits_(limits),
      unix_time_(std::move(unix_time)) {
  for (const OldFile& file : list()) {
    if (file.changed < unix_time_() - limits_.max_age_s || file.path.ends_with(kPartSuffix)) {
      ::unlink(file.path.c_str());
    }
  }
}

HmacTag ResumeStore::digest_body(std::string_view path, std::string_view body) const {
  Hmac hmac(bodies_);
  add(hmac, path);
  add(hmac, body);
  return hmac.finish();
}

std::string ResumeStore::name_of(const Key& key) const {
  Hmac hmac(names_);
  add(hmac, key.tenant);
  add(hmac, key.request_id);
  hmac.update(std::as_bytes(std::span(&key.root, 1)));
  hmac.update(key.body);
  return to_hex(sha256(hmac.finish())).substr(0, 32) + std::string(kSuffix);
}

// The files of all models, the oldest first.
std::vector<ResumeStore::OldFile> ResumeStore::list() const {
  std::vector<OldFile> files;
  std::error_code problem;
  fs::directory_iterator entries(folder_, problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    std::string path = entries->path().string();
    struct stat facts{};
    if (!path.ends_with(kSuffix) && !path.ends_with(kPartSuffix)) continue;
    if (::lstat(path.c_str(), &facts) != 0 || S_ISDIR(facts.st_mode)) continue;
    files.push_back(
        {facts.st_mtime, std::move(path), on_disk(static_cast<std::uint64_t>(facts.st_size))});
  }
  std::ranges::sort(files, {},
                    [](const OldFile& file) { return std::tie(file.changed, file.path); });
  return files;
}

std::vector<Status> ResumeStore::save(std::span<const Entry> entries) const {
  std::vector<OldFile> others = list();
  std::uint64_t old_bytes = 0;
  for (const OldFile& file : others) old_bytes += file.bytes;
  std::uint64_t new_bytes = 0;
  std::vector<Status> saved;
  for (const Entry& entry : entries) {
    const std::string name = name_of(entry.key);
    const std::uint64_t bytes = on_disk(resume_file_bytes(entry.answer.tokens.size()));
    struct statvfs disk{};
    if (new_bytes + bytes > limits_.max_bytes) {
      saved.emplace_back(resource_exhausted(fmt::format("{}/{}: saved answers have {} KiB at most",
                                                        folder_, name, limits_.max_bytes >> 10)));
      continue;
    }
    if (::statvfs(folder_.c_str(), &disk) == 0 &&
        disk.f_bavail * disk.f_frsize < bytes + limits_.free_bytes) {
      saved.emplace_back(
          resource_exhausted(fmt::format("{}/{}: the filesystem has less than {} MiB free", folder_,
                                         name, (bytes + limits_.free_bytes) >> 20)));
      continue;
    }
    const std::string path = folder_ + "/" + name;
    const auto replaced = std::ranges::find(others, path, &OldFile::path);
    if (replaced != others.end()) {
      old_bytes -= replaced->bytes;
      others.erase(replaced);
    }
    for (; old_bytes + new_bytes + bytes > limits_.max_bytes; others.erase(others.begin())) {
      ::unlink(others.front().path.c_str());
      old_bytes -= others.front().bytes;
    }
    saved.push_back(write(name, entry.answer));
    if (saved.back()) new_bytes += bytes;
  }
  return saved;
}

Status ResumeStore::write(const std::string& name, const Answer& answer) const {
  const std::string path = folder_ + "/" + name;
  if (answer.tokens.size() > kMaxResumeTokens) {
    return resource_exhausted(path + ": the answer has too many tokens");
  }
  const auto file = seal_resume_file(contents_, name, {unix_time_(), answer.seed, answer.tokens});
  const std::string part = fmt::format("{}/{}.part", folder_, name);
  const FileDescriptor out(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out.valid()) return write_error(part);
  const ssize_t written = ::write(out.get(), file.data(), file.size());
  if (written >= 0 && written != static_cast<ssize_t>(file.size())) errno = ENOSPC;
  if (written == static_cast<ssize_t>(file.size()) && ::fsync(out.get()) == 0 &&
      ::rename(part.c_str(), path.c_str()) == 0) {
    return {};
  }
  Error error = write_error(part);
  ::unlink(part.c_str());
  return error;
}

std::optional<ResumeStore::Answer> ResumeStore::find(const Key& key) const {
  const std::string name = name_of(key);
  const std::string path = folder_ + "/" + name;
  // O_NONBLOCK: something else than a file may have the name.
  const FileDescriptor in(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts{};
  if (!in.valid() || ::fstat(in.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  std::optional<ResumeFile> file;
  const auto size = static_cast<std::size_t>(facts.st_size);
  if (size <= resume_file_bytes(kMaxResumeTokens)) {
    std::vector<std::byte> bytes(size);
    const ssize_t count = ::read(in.get(), bytes.data(), size);
    if (count < 0) return {};  // an error that may pass
    bytes.resize(static_cast<std::size_t>(count));
    file = open_resume_file(contents_, name, std::move(bytes));
  }
  if (!file || file->saved < unix_time_() - limits_.max_age_s) {
    ::unlink(path.c_str());
    return {};
  }
  return Answer{file->seed, std::move(file->tokens)};
}

void ResumeStore::remove(const Key& key) const { ::unlink((folder_ + "/" + name_of(key)).c_str()); }

}  // namespace sluice
