// Files are read with pread, not through their mapping: a file that shrinks meanwhile is then an
// error and not a SIGBUS.
#include "checkpoint/digest.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

namespace sluice {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kSamples = 16;
constexpr std::uint64_t kSampleBytes = 4096;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

Status read_at(const SafetensorsFile& file, std::uint64_t offset, std::span<std::byte> target) {
  while (!target.empty()) {
    const ssize_t n = pread(file.fd(), target.data(), target.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return unavailable(
          fmt::format("{}: cannot read: {}", file.path(), std::generic_category().message(errno)));
    }
    if (n == 0) return unavailable(file.path() + ": became shorter while it was read");
    target = target.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

// Every part is preceded by its length, so that no two lists of parts give the same bytes.
void update_part(Sha256& hash, std::string_view part) {
  hash.update(fmt::format("{}:", part.size()));
  hash.update(part);
}

Status update_config(Sha256& hash, const std::string& directory) {
  auto config = read_file(directory + "/config.json", kMaxConfigBytes);
  // A directory with only weights has no config.json. Its digest still differs from that of an
  // empty config.json.
  if (!config && config.error().code != ErrorCode::kNotFound) return config.error();
  update_part(hash, config ? "config" : "no config");
  update_part(hash, config ? *config : std::string());
  return {};
}

std::string_view file_name(const SafetensorsFile& file) {
  const std::string_view path = file.path();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Result<Sha256Digest> model_digest(const Checkpoint& checkpoint) {
  Sha256 hash;
  update_part(hash, "sluice model digest 1");
  RETURN_IF_ERROR(update_config(hash, checkpoint.directory()));
  std::vector<std::byte> sample(kSampleBytes);
  for (const SafetensorsFile& file : checkpoint.files()) {
    update_part(hash, file_name(file));
    update_part(hash, std::to_string(file.size()));
    update_part(hash, file.header());
    const std::uint64_t start = 8 + file.header().size();
    const std::uint64_t bytes = file.size() - start;
    const std::uint64_t length = std::min(bytes, kSampleBytes);
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      // (bytes - length) * i / (kSamples - 1) without overflow: the last sample ends the file.
      const auto [step, rest] =
          std::pair((bytes - length) / (kSamples - 1), (bytes - length) % (kSamples - 1));
      const std::uint64_t offset = step * i + rest * i / (kSamples - 1);
      const auto target = std::span(sample).first(static_cast<std::size_t>(length));
      RETURN_IF_ERROR(read_at(file, start + offset, target));
      hash.update(target);
    }
  }
  return hash.finish();
}

Result<FileDigestCache::Identity> FileDigestCache::identify(const SafetensorsFile& file) {
  struct stat info{};
  if (fstat(file.fd(), &info) != 0) {
    return unavailable(
        fmt::format("{}: cannot stat: {}", file.path(), std::generic_category().message(errno)));
  }
  const auto nanoseconds = [](const timespec& t) {
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  return Identity{info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
                  nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

Result<Sha256Digest> FileDigestCache::digest(const SafetensorsFile& file) {
  ASSIGN_OR_RETURN(const Identity before, identify(file));
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.identity == before; });
  if (known != entries_.end()) return known->digest;
  Sha256 hash;
  std::vector<std::byte> buffer(kReadBytes);
  for (std::uint64_t offset = 0; offset < before.size;) {
    const auto length =
        static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), before.size - offset));
    const auto target = std::span(buffer).first(length);
    RETURN_IF_ERROR(read_at(file, offset, target));
    hash.update(target);
    offset += length;
  }
  ++files_read_;
  const Sha256Digest digest = hash.finish();
  ASSIGN_OR_RETURN(const Identity after, identify(file));
  if (!(after == before)) return unavailable(file.path() + ": changed while it was read");
  entries_.push_back({before, digest});
  return digest;
}

Result<Sha256Digest> content_digest(const Checkpoint& checkpoint, FileDigestCache& cache) {
  Sha256 hash;
  update_part(hash, "sluice content digest 1");
  RETURN_IF_ERROR(update_config(hash, checkpoint.directory()));
  for (const SafetensorsFile& file : checkpoint.files()) {
    ASSIGN_OR_RETURN(const Sha256Digest digest, cache.digest(file));
    update_part(hash, file_name(file));
    hash.update(std::as_bytes(std::span(digest)));
  }
  return hash.finish();
}

}  // namespace sluice
