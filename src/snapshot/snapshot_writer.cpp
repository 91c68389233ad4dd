#include "snapshot/snapshot_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/new_file.h"

namespace sluice {
namespace {

// The sections of the new file, and the bytes of its blobs.
class Contents {
 public:
  void add(SnapshotSection section, std::span<const std::byte> bytes) {
    section.blob = find_or_add_blob(bytes);
    table.sections.push_back(std::move(section));
  }

  bool has(const SnapshotSection& section) const {
    return std::ranges::any_of(table.sections, [&](const SnapshotSection& other) {
      return other.kind == section.kind && other.version == section.version &&
             other.key == section.key;
    });
  }

  std::size_t count(const std::string& kind) const {
    return static_cast<std::size_t>(
        std::ranges::count(table.sections, kind, &SnapshotSection::kind));
  }

  std::uint64_t stored_bytes() const {
    std::uint64_t all = 0;
    for (const SnapshotBlob& blob : table.blobs) all += blob.stored_bytes();
    return all;
  }

  SnapshotTable table;
  std::vector<std::span<const std::byte>> blobs;

 private:
  std::size_t find_or_add_blob(std::span<const std::byte> bytes) {
    std::vector<Hash128> pieces = hash_pieces(bytes);
    for (std::size_t i = 0; i < blobs.size(); ++i) {
      if (table.blobs[i].pieces == pieces && std::ranges::equal(blobs[i], bytes)) return i;
    }
    table.blobs.push_back({0, bytes.size(), std::move(pieces)});
    blobs.push_back(bytes);
    return blobs.size() - 1;
  }
};

// Bytes of a damaged section must not be written again under a hash that fits them.
Result<std::optional<SnapshotFile>> read_old(const std::string& path, OldSections what) {
  if (what == OldSections::kDrop) return std::optional<SnapshotFile>();
  auto old = SnapshotFile::open(path);
  if (!old && old.error().code == ErrorCode::kNotFound) return std::optional<SnapshotFile>();
  Status sound = old ? old->verify() : Status(old.error());
  if (sound) return std::optional<SnapshotFile>(*std::move(old));
  if (what == OldSections::kKeep) return std::move(sound).error();
  return std::optional<SnapshotFile>();
}

Status add_old(SnapshotFile& old, const SnapshotWriteOptions& options, Contents& contents) {
  for (const SnapshotSection& section : old.table().sections) {
    if (contents.has(section)) continue;
    const std::uint64_t more = old.table().blobs[section.blob].stored_bytes();
    if (options.max_per_kind != 0 && contents.count(section.kind) >= options.max_per_kind) continue;
    if (options.max_bytes != 0 && contents.stored_bytes() + more > options.max_bytes) continue;
    ASSIGN_OR_RETURN(const auto bytes, old.bytes(section));
    contents.add(section, bytes);
  }
  return {};
}

Status write_blobs(NewFile& file, const Contents& contents, std::uint64_t done,
                   const SnapshotWriteOptions& options) {
  const std::uint64_t all = done + contents.stored_bytes();
  const auto write = [&](std::span<const std::byte> bytes) -> Status {
    RETURN_IF_ERROR(file.write(bytes));
    done += bytes.size();
    if (options.progress) options.progress(done, all);
    return {};
  };
  for (std::size_t i = 0; i < contents.blobs.size(); ++i) {
    std::span<const std::byte> left = contents.blobs[i];
    while (!left.empty()) {
      const auto piece =
          left.first(std::min(left.size(), static_cast<std::size_t>(kSnapshotPieceBytes)));
      RETURN_IF_ERROR(write(piece));
      left = left.subspan(piece.size());
    }
    const SnapshotBlob& blob = contents.table.blobs[i];
    const std::vector<std::byte> padding(
        static_cast<std::size_t>(blob.stored_bytes() - blob.bytes));
    RETURN_IF_ERROR(write(padding));
  }
  return {};
}

Status write_sections(const std::string& path, std::span<const NewSection> sections,
                      const SnapshotWriteOptions& options) {
  // The old file is read under the new one's lock, so that no other writer's sections are lost.
  ASSIGN_OR_RETURN(NewFile file, NewFile::create(path, options.for_this_user_only ? 0600 : 0644));
  ASSIGN_OR_RETURN(std::optional<SnapshotFile> old, read_old(path, options.old_sections));
  Contents contents;
  for (const NewSection& section : sections) {
    contents.add({section.kind, section.version, section.key, 0}, section.bytes);
  }
  if (old) RETURN_IF_ERROR(add_old(*old, options, contents));
  const std::vector<std::byte> head = encode_snapshot_head(contents.table);
  RETURN_IF_ERROR(file.write(head));
  RETURN_IF_ERROR(write_blobs(file, contents, head.size(), options));
  return file.commit();
}

}  // namespace

Status write_snapshot(const std::string& path, std::span<const NewSection> sections,
                      const SnapshotWriteOptions& options) {
  Status status = write_sections(path, sections, options);
  if (status || status.error().message.starts_with("snapshot")) return status;
  return with_context("snapshot", std::move(status).error());
}

}  // namespace sluice
