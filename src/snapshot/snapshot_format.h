// The format of snapshot files: a head (header and table of sections), then blobs of bytes.
//
//   header   64 bytes: magic, format version, sizes, hash of the table, hash of the header
//   table    blobs and sections, padded to kSnapshotAlignment
//   blobs    one after the other, each padded to kSnapshotAlignment; the last ends the file
//
// A section is what one part of the program keeps: its kind, the version of its contents, its key
// (all that the contents depend on, as names and values), and the blob with the bytes. Equal bytes
// are stored once: several sections may name one blob. Hashes cover every byte of the file: the
// header's hash the header, the table's hash table and padding, a blob's hashes its pieces of
// kSnapshotPieceBytes, padding included.
//
// Errors name what is wrong and not the file, which the caller adds. A file is data from outside:
// every count and size is checked before it is used.
// Values and pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"

namespace sluice {

inline constexpr std::uint32_t kSnapshotFormat = 1;
inline constexpr std::size_t kSnapshotHeaderBytes = 64;
inline constexpr std::uint64_t kSnapshotAlignment = 4096;
inline constexpr std::uint64_t kSnapshotPieceBytes = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kMaxSnapshotTableBytes = std::uint64_t{16} << 20;

// One thing that a section depends on: {"dtype", "bf16"}.
struct SnapshotFact {
  std::string name;
  std::string value;
  friend bool operator==(const SnapshotFact&, const SnapshotFact&) = default;
};
using SnapshotKey = std::vector<SnapshotFact>;

struct SnapshotBlob {
  std::uint64_t offset = 0;     // in the file
  std::uint64_t bytes = 0;      // without padding
  std::vector<Hash128> pieces;  // of the stored bytes, padding included

  std::uint64_t stored_bytes() const;
  // The stored bytes of one piece, as offset from the blob's begin and length.
  std::uint64_t piece_offset(std::size_t piece) const { return piece * kSnapshotPieceBytes; }
  std::uint64_t piece_bytes(std::size_t piece) const;
};

struct SnapshotSection {
  std::string kind;
  std::uint32_t version = 0;  // of the contents
  SnapshotKey key;
  std::size_t blob = 0;  // index
  friend bool operator==(const SnapshotSection&, const SnapshotSection&) = default;
};

struct SnapshotTable {
  std::vector<SnapshotBlob> blobs;
  std::vector<SnapshotSection> sections;
};

// The hashes of a blob's pieces; the padding is hashed as zeros.
std::vector<Hash128> hash_pieces(std::span<const std::byte> bytes);

// The head of a file with these blobs and sections. Sets the blobs' offsets, from their sizes.
std::vector<std::byte> encode_snapshot_head(SnapshotTable& table);

// Reads the head of a file. `file` is the whole file; its blobs are not looked at.
// kInvalidArgument for what is not a snapshot, is truncated or damaged; kUnsupported for a later
// version of the format.
Result<SnapshotTable> parse_snapshot_head(std::span<const std::byte> file);

}  // namespace sluice
