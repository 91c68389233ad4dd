#include "snapshot/snapshot_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/byte_stream.h"
#include "base/content_hash.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic = "SLUICESN";
// The header's bytes in front of its own hash.
constexpr std::size_t kHashedHeaderBytes = kSnapshotHeaderBytes - sizeof(Hash128);
constexpr std::uint64_t kMaxBlobBytes = std::uint64_t{1} << 50;

// A table that has more is damaged, or hostile.
constexpr std::uint32_t kMaxEntries = 1 << 14;  // sections, and blobs
constexpr std::uint32_t kMaxFacts = 64;

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kSnapshotAlignment - 1) / kSnapshotAlignment * kSnapshotAlignment;
}

std::size_t piece_count(std::uint64_t stored_bytes) {
  return static_cast<std::size_t>((stored_bytes + kSnapshotPieceBytes - 1) / kSnapshotPieceBytes);
}

struct Header {
  std::uint64_t file_bytes = 0;
  std::uint64_t table_bytes = 0;  // with padding
  Hash128 table_hash;
};

Error damaged(std::string_view part) {
  return invalid_argument(fmt::format("{} is damaged; save the snapshot again", part));
}

std::vector<std::byte> encode_header(const Header& header) {
  ByteWriter writer;
  writer.bytes(std::as_bytes(std::span(kMagic)));
  writer.u32(kSnapshotFormat);
  writer.u32(0);
  writer.u64(header.file_bytes);
  writer.u64(header.table_bytes);
  writer.hash(header.table_hash);
  writer.hash(content_hash(writer.written()));
  return writer.take();
}

Result<Header> parse_header(std::span<const std::byte> file) {
  ByteReader reader(file.first(std::min(file.size(), kSnapshotHeaderBytes)));
  const auto magic = reader.bytes(std::min(file.size(), kMagic.size()));
  if (magic.empty() || !std::ranges::equal(magic, std::as_bytes(std::span(kMagic)))) {
    return invalid_argument("is not a snapshot: it does not begin with " + std::string(kMagic));
  }
  if (file.size() < kSnapshotHeaderBytes) {
    return invalid_argument(
        fmt::format("is truncated: {} bytes are too few for a header", file.size()));
  }
  const std::uint32_t format = reader.u32();
  if (format != kSnapshotFormat) {
    return unsupported(
        fmt::format("has format {}, this version of sluice reads format {}; save it "
                    "again with this version",
                    format, kSnapshotFormat));
  }
  static_cast<void>(reader.u32());
  Header header;
  header.file_bytes = reader.u64();
  header.table_bytes = reader.u64();
  header.table_hash = reader.hash();
  if (reader.hash() != content_hash(file.first(kHashedHeaderBytes))) return damaged("the header");
  if (header.file_bytes != file.size()) {
    return invalid_argument(
        fmt::format("has {} bytes instead of {}: it is truncated or damaged; "
                    "copy or save it again",
                    file.size(), header.file_bytes));
  }
  if (header.table_bytes > kMaxSnapshotTableBytes ||
      header.table_bytes > file.size() - kSnapshotHeaderBytes) {
    return damaged("the header");
  }
  return header;
}

void encode_table(const SnapshotTable& table, ByteWriter& writer) {
  writer.u32(static_cast<std::uint32_t>(table.blobs.size()));
  for (const SnapshotBlob& blob : table.blobs) {
    writer.u64(blob.bytes);
    for (const Hash128& piece : blob.pieces) writer.hash(piece);
  }
  writer.u32(static_cast<std::uint32_t>(table.sections.size()));
  for (const SnapshotSection& section : table.sections) {
    writer.text(section.kind);
    writer.u32(section.version);
    writer.u32(static_cast<std::uint32_t>(section.blob));
    writer.u32(static_cast<std::uint32_t>(section.key.size()));
    for (const SnapshotFact& fact : section.key) {
      writer.text(fact.name);
      writer.text(fact.value);
    }
  }
}

// Blobs fill the file from `offset` to its end.
Status parse_blobs(ByteReader& reader, std::uint64_t offset, std::uint64_t file_bytes,
                   std::vector<SnapshotBlob>& blobs) {
  const std::uint32_t count = reader.u32();
  if (count > kMaxEntries) return damaged("the table");
  for (std::uint32_t i = 0; i < count; ++i) {
    SnapshotBlob blob;
    blob.offset = offset;
    blob.bytes = reader.u64();
    if (!reader.ok() || blob.bytes > kMaxBlobBytes) return damaged("the table");
    const std::uint64_t stored = blob.stored_bytes();
    const std::size_t pieces = piece_count(stored);
    if (stored > file_bytes - offset || pieces > reader.left() / sizeof(Hash128)) {
      return damaged("the table");
    }
    for (std::size_t piece = 0; piece < pieces; ++piece) blob.pieces.push_back(reader.hash());
    offset += stored;
    blobs.push_back(std::move(blob));
  }
  return reader.ok() && offset == file_bytes ? Status() : damaged("the table");
}

Status parse_sections(ByteReader& reader, SnapshotTable& table) {
  const std::uint32_t count = reader.u32();
  if (count > kMaxEntries) return damaged("the table");
  for (std::uint32_t i = 0; i < count; ++i) {
    SnapshotSection section;
    section.kind = reader.text();
    section.version = reader.u32();
    section.blob = reader.u32();
    const std::uint32_t facts = reader.u32();
    if (!reader.ok() || section.blob >= table.blobs.size() || facts > kMaxFacts) {
      return damaged("the table");
    }
    for (std::uint32_t fact = 0; fact < facts; ++fact) {
      std::string name(reader.text());
      section.key.push_back({std::move(name), std::string(reader.text())});
    }
    table.sections.push_back(std::move(section));
  }
  return reader.ok() ? Status() : damaged("the table");
}

}  // namespace

std::uint64_t SnapshotBlob::stored_bytes() const { return padded(bytes); }

std::uint64_t SnapshotBlob::piece_bytes(std::size_t piece) const {
  return std::min(stored_bytes() - piece_offset(piece), kSnapshotPieceBytes);
}

std::vector<Hash128> hash_pieces(std::span<const std::byte> bytes) {
  std::vector<Hash128> hashes;
  const std::uint64_t stored = padded(bytes.size());
  for (std::uint64_t begin = 0; begin < stored; begin += kSnapshotPieceBytes) {
    const auto end = std::min<std::uint64_t>(begin + kSnapshotPieceBytes, stored);
    const auto filled = std::min<std::uint64_t>(end, bytes.size());
    ContentHasher hasher;
    hasher.update(
        bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(filled - begin)));
    const std::vector<std::byte> padding(static_cast<std::size_t>(end - filled));
    hasher.update(padding);
    hashes.push_back(hasher.digest());
  }
  return hashes;
}

std::vector<std::byte> encode_snapshot_head(SnapshotTable& table) {
  ByteWriter body;
  encode_table(table, body);
  // With the header in front, the blobs begin at a multiple of the alignment.
  const std::uint64_t head_bytes = padded(kSnapshotHeaderBytes + body.size());
  ByteWriter head;
  std::vector<std::byte> contents = body.take();
  contents.resize(static_cast<std::size_t>(head_bytes) - kSnapshotHeaderBytes);
  std::uint64_t offset = head_bytes;
  for (SnapshotBlob& blob : table.blobs) {
    blob.offset = offset;
    offset += blob.stored_bytes();
  }
  head.bytes(encode_header({offset, contents.size(), content_hash(contents)}));
  head.bytes(contents);
  return head.take();
}

Result<SnapshotTable> parse_snapshot_head(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const Header header, parse_header(file));
  const auto contents =
      file.subspan(kSnapshotHeaderBytes, static_cast<std::size_t>(header.table_bytes));
  if (content_hash(contents) != header.table_hash) return damaged("the table");
  const std::uint64_t head_bytes = kSnapshotHeaderBytes + header.table_bytes;
  if (head_bytes % kSnapshotAlignment != 0) return damaged("the table");
  ByteReader reader(contents);
  SnapshotTable table;
  RETURN_IF_ERROR(parse_blobs(reader, head_bytes, header.file_bytes, table.blobs));
  RETURN_IF_ERROR(parse_sections(reader, table));
  return table;
}

}  // namespace sluice
