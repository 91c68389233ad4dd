// Files are read, not mapped: a file that shrinks meanwhile is then an error and not a SIGBUS.
#include "base/file_digests.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/byte_stream.h"
#include "base/cache_folder.h"
#include "base/content_hash.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_file.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMagic = 0x3153494447464c53;  // "SLFGDIS1"
constexpr std::uint64_t kMaxCacheBytes = std::uint64_t{1} << 20;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// Clocks of file systems tick every few milliseconds, some every two seconds.
constexpr std::int64_t kFineTick = 50'000'000;
constexpr std::int64_t kCoarseTick = 2'000'000'000;

Error cannot(const std::string& path, const char* action, int number) {
  return unavailable(
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(number)));
}

Result<FileIdentity> identify(int fd, const std::string& path) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return cannot(path, "stat", errno);
  const auto nanoseconds = [](const timespec& t) {
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  return FileIdentity{info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
                      nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

bool is_settled(const FileIdentity& identity) {
  const bool coarse = identity.changed_ns % 1'000'000'000 == 0;
  const std::int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  return now - identity.changed_ns > (coarse ? kCoarseTick : kFineTick);
}

Result<Hash128> hash_file(int fd, const std::string& path) {
  ContentHasher hasher;
  std::vector<std::byte> buffer(kReadBytes);
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot(path, "read", errno);
    if (n == 0) return hasher.digest();
    hasher.update(std::span(buffer).first(static_cast<std::size_t>(n)));
  }
}

}  // namespace

FileDigests::FileDigests(std::string cache_path) : cache_path_(std::move(cache_path)) {
  if (!open_own_file(cache_path_)) return;
  const auto text = read_file(cache_path_, kMaxCacheBytes);
  if (text) entries_ = decode(std::as_bytes(std::span(*text)));
}

Result<Hash128> FileDigests::digest(const std::string& path) {
  ASSIGN_OR_RETURN(const OpenedFile file, open_for_reading(path));
  ASSIGN_OR_RETURN(const FileIdentity before, identify(file.fd.get(), path));
  if (const auto known = entries_.find(before); known != entries_.end()) return known->second;
  const bool settled = is_settled(before);
  if (before.size >= kToldBytes) {
    log_info(fmt::format("{}: reading {} MiB for its digest, which keys of snapshots name; {}",
                         path, before.size >> 20,
                         settled && !cache_path_.empty() ? "the digest is remembered"
                                                         : "the next start reads it again"));
  }
  ASSIGN_OR_RETURN(const Hash128 hash, hash_file(file.fd.get(), path));
  ++files_read_;
  ASSIGN_OR_RETURN(const FileIdentity after, identify(file.fd.get(), path));
  if (after != before) return unavailable(path + ": changed while it was read");
  if (settled) {
    if (entries_.size() >= kMaxRemembered) entries_.clear();
    entries_.emplace(before, hash);
    changed_ = true;
  }
  return hash;
}

Status FileDigests::save() {
  if (!changed_ || cache_path_.empty()) return {};
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(cache_path_, 0600));
  const std::vector<std::byte> bytes = encode(entries_);
  RETURN_IF_ERROR(file.write(bytes));
  changed_ = false;
  return file.commit();
}

std::vector<std::byte> FileDigests::encode(const Entries& entries) {
  ByteWriter writer;
  writer.u64(kMagic);
  writer.u64(entries.size());
  for (const auto& [identity, hash] : entries) {
    writer.u64(identity.device);
    writer.u64(identity.inode);
    writer.u64(identity.size);
    writer.u64(static_cast<std::uint64_t>(identity.modified_ns));
    writer.u64(static_cast<std::uint64_t>(identity.changed_ns));
    writer.hash(hash);
  }
  writer.hash(content_hash(writer.written()));
  return writer.take();
}

FileDigests::Entries FileDigests::decode(std::span<const std::byte> bytes) {
  Entries entries;
  if (bytes.size() < sizeof(Hash128)) return {};
  const auto content = bytes.first(bytes.size() - sizeof(Hash128));
  ByteReader tail(bytes.subspan(content.size()));
  ByteReader reader(content);
  if (tail.hash() != content_hash(content) || reader.u64() != kMagic) return {};
  const std::uint64_t count = reader.u64();
  for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
    FileIdentity identity;
    identity.device = reader.u64();
    identity.inode = reader.u64();
    identity.size = reader.u64();
    identity.modified_ns = static_cast<std::int64_t>(reader.u64());
    identity.changed_ns = static_cast<std::int64_t>(reader.u64());
    entries[identity] = reader.hash();
  }
  return reader.ok() && reader.left() == 0 ? entries : Entries();
}

}  // namespace sluice
