#include "snapshot/snapshot_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/content_hash.h"
#include "base/page_in.h"

namespace sluice {
namespace {

const SnapshotFact* find_fact(const SnapshotKey& key, std::string_view name) {
  const auto found =
      std::ranges::find_if(key, [&](const SnapshotFact& fact) { return fact.name == name; });
  return found == key.end() ? nullptr : &*found;
}

// The facts of `wanted` that the section's key does not have.
std::vector<const SnapshotFact*> differing_facts(const SnapshotKey& key,
                                                 const SnapshotKey& wanted) {
  std::vector<const SnapshotFact*> facts;
  for (const SnapshotFact& fact : wanted) {
    const SnapshotFact* own = find_fact(key, fact.name);
    if (own == nullptr || own->value != fact.value) facts.push_back(&fact);
  }
  return facts;
}

std::string difference(const SnapshotSection& section, std::uint32_t version,
                       const SnapshotKey& wanted) {
  if (section.version != version) {
    return fmt::format("has version {}, this version of sluice reads version {}", section.version,
                       version);
  }
  const auto facts = differing_facts(section.key, wanted);
  if (facts.empty()) return "depends on facts that this version of sluice does not know";
  const SnapshotFact* own = find_fact(section.key, facts.front()->name);
  return fmt::format("was made for {} '{}', this start has '{}'", facts.front()->name,
                     own == nullptr ? "" : own->value, facts.front()->value);
}

}  // namespace

SnapshotFile::SnapshotFile(std::string path, FileDescriptor fd, MappedFile file,
                           SnapshotTable table)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      file_(std::move(file)),
      table_(std::move(table)),
      verified_(table_.blobs.size(), false) {}

Result<SnapshotFile> SnapshotFile::open(const std::string& path) {
  auto file = open_for_reading(path);
  if (!file) return with_context("snapshot", std::move(file).error());
  return open(*file, path);
}

Result<SnapshotFile> SnapshotFile::open(const OpenedFile& file, const std::string& path) {
  auto mapped = MappedFile::map(file, path);
  if (!mapped) return with_context("snapshot", std::move(mapped).error());
  auto table = parse_snapshot_head(mapped->bytes());
  if (!table) {
    Error error = std::move(table).error();
    error.message = fmt::format("snapshot {} {}", path, error.message);
    return error;
  }
  FileDescriptor fd(fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) {
    return unavailable(
        fmt::format("snapshot {}: cannot be kept open: {}", path, std::strerror(errno)));
  }
  return SnapshotFile(path, std::move(fd), *std::move(mapped), *std::move(table));
}

Result<const SnapshotSection*> SnapshotFile::find(std::string_view kind, std::uint32_t version,
                                                  const SnapshotKey& key) const {
  const SnapshotSection* nearest = nullptr;
  std::size_t least = 0;
  for (const SnapshotSection& section : table_.sections) {
    if (section.kind != kind) continue;
    if (section.version == version && section.key == key) return &section;
    const std::size_t differs =
        differing_facts(section.key, key).size() + (section.version == version ? 0 : key.size());
    if (nearest != nullptr && differs >= least) continue;
    nearest = &section;
    least = differs;
  }
  if (nearest == nullptr) {
    return not_found(fmt::format("snapshot {} has no section '{}'", path_, kind));
  }
  return not_found(
      fmt::format("snapshot {}: section '{}' {}", path_, kind, difference(*nearest, version, key)));
}

Error SnapshotFile::damaged(std::size_t blob) const {
  std::string kinds;
  for (const SnapshotSection& section : table_.sections) {
    if (section.blob != blob) continue;
    kinds += fmt::format("{}'{}'", kinds.empty() ? "" : ", ", section.kind);
  }
  return invalid_argument(
      fmt::format("snapshot {}: section {} is damaged; save the snapshot again", path_, kinds));
}

bool SnapshotFile::piece_matches(std::size_t blob, std::size_t piece) const {
  const SnapshotBlob& b = table_.blobs[blob];
  const auto begin = static_cast<std::size_t>(b.offset + b.piece_offset(piece));
  const auto length = static_cast<std::size_t>(b.piece_bytes(piece));
  return content_hash(file_.bytes().subspan(begin, length)) == b.pieces[piece];
}

Status SnapshotFile::verify_blob(std::size_t blob) {
  for (std::size_t piece = 0; piece < table_.blobs[blob].pieces.size(); ++piece) {
    if (!piece_matches(blob, piece)) return damaged(blob);
  }
  verified_[blob] = true;
  return {};
}

Result<std::span<const std::byte>> SnapshotFile::bytes(const SnapshotSection& section) {
  if (!verified_[section.blob]) {
    start_paging_in(unchecked_bytes(section));  // hashing alone reads the disk a little at a time
    RETURN_IF_ERROR(verify_blob(section.blob));
  }
  if (file_.faulted()) return damaged(section.blob);
  const SnapshotBlob& blob = table_.blobs[section.blob];
  return file_.bytes().subspan(static_cast<std::size_t>(blob.offset),
                               static_cast<std::size_t>(blob.bytes));
}

Result<std::vector<std::byte>> SnapshotFile::copy(const SnapshotSection& section) const {
  const SnapshotBlob& blob = table_.blobs[section.blob];
  const auto stored = file_.bytes().subspan(static_cast<std::size_t>(blob.offset),
                                            static_cast<std::size_t>(blob.stored_bytes()));
  std::vector<std::byte> bytes(stored.begin(), stored.end());
  for (std::size_t piece = 0; piece < blob.pieces.size(); ++piece) {
    const auto part = std::span(bytes).subspan(static_cast<std::size_t>(blob.piece_offset(piece)),
                                               static_cast<std::size_t>(blob.piece_bytes(piece)));
    if (content_hash(part) != blob.pieces[piece]) return damaged(section.blob);
  }
  bytes.resize(static_cast<std::size_t>(blob.bytes));
  return bytes;
}

std::span<const std::byte> SnapshotFile::unchecked_bytes(const SnapshotSection& section) const {
  const SnapshotBlob& blob = table_.blobs[section.blob];
  return file_.bytes().subspan(static_cast<std::size_t>(blob.offset),
                               static_cast<std::size_t>(blob.stored_bytes()));
}

std::vector<Error> SnapshotFile::find_damage() {
  std::vector<Error> damage;
  for (std::size_t blob = 0; blob < table_.blobs.size(); ++blob) {
    if (verified_[blob]) continue;
    if (Status sound = verify_blob(blob); !sound) damage.push_back(std::move(sound).error());
  }
  if (damage.empty() && file_.faulted()) {
    damage.push_back(
        invalid_argument(fmt::format("snapshot {} became shorter while it was used", path_)));
  }
  return damage;
}

Status SnapshotFile::verify() {
  std::vector<Error> damage = find_damage();
  if (damage.empty()) return {};
  return std::move(damage.front());
}

}  // namespace sluice
