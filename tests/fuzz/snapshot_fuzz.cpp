// Heads of snapshot files. The fuzzer cannot guess hashes, so the target sets the two of the head
// before it parses: the checks behind them see hostile tables. The blobs of an accepted table fill
// the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/content_hash.h"
#include "snapshot/section_kinds.h"
#include "snapshot/snapshot_format.h"

namespace {

constexpr std::size_t kFileSize = 16;
constexpr std::size_t kTableBytes = 24;
constexpr std::size_t kTableHash = 32;
constexpr std::size_t kHeaderHash = 48;

// The two sizes that must fit are right in every other input; so the table is reached.
void set_hashes(std::vector<std::byte>& file, bool set_sizes) {
  if (file.size() < sluice::kSnapshotHeaderBytes) return;
  const std::uint64_t size = file.size();
  std::uint64_t table = 0;
  std::memcpy(&table, file.data() + kTableBytes, sizeof(table));
  if (set_sizes) {
    std::memcpy(file.data() + kFileSize, &size, sizeof(size));
    table = std::min<std::uint64_t>(sluice::kSnapshotAlignment, size) - 64;
    std::memcpy(file.data() + kTableBytes, &table, sizeof(table));
  }
  if (table <= size - 64) {
    const sluice::Hash128 hash = sluice::content_hash(
        std::span<const std::byte>(file).subspan(64, static_cast<std::size_t>(table)));
    std::memcpy(file.data() + kTableHash, &hash, sizeof(hash));
  }
  const sluice::Hash128 hash =
      sluice::content_hash(std::span<const std::byte>(file).first(kHeaderHash));
  std::memcpy(file.data() + kHeaderHash, &hash, sizeof(hash));
}

void check(const sluice::SnapshotTable& table, std::uint64_t file_bytes) {
  std::uint64_t end = table.blobs.empty() ? file_bytes : table.blobs.front().offset;
  for (const sluice::SnapshotBlob& blob : table.blobs) {
    CHECK(blob.offset == end && blob.bytes <= blob.stored_bytes());
    std::uint64_t pieces = 0;
    for (std::size_t i = 0; i < blob.pieces.size(); ++i) pieces += blob.piece_bytes(i);
    CHECK(pieces == blob.stored_bytes());
    end += blob.stored_bytes();
  }
  CHECK(end == file_bytes);
  for (const sluice::SnapshotSection& section : table.sections) {
    CHECK(section.blob < table.blobs.size());
    static_cast<void>(sluice::find_section_kind(section.kind));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<std::byte> file(input.begin(), input.end());
  for (const bool set : {false, true}) {
    if (set) set_hashes(file, size % 2 == 0);
    const auto table = sluice::parse_snapshot_head(file);
    if (table) {
      check(*table, size);
    } else {
      CHECK(!table.error().message.empty());
    }
  }
  return 0;
}
