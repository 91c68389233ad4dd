// The format of a segment: a file with a fixed number of pages, each with one KV block.
//
//   header   4096 bytes: magic, version, shape, sealing, identity, the tag of all before
//   records  128 bytes for each page, padded to 4096: what the page holds
//   pages    page_bytes each, from a multiple of 4096 on
//
// A record is written after its page. Its own tag covers the record's fields and place, so that a
// start reads records only; the block's tag covers the block, its name, its group and its place, so
// that a load accepts nothing but what was saved. The keys of all tags are derived from the secret
// and the identity: segments of another model, or of another secret, are not ours.
//
// Sealing: with kTags blocks and records lie open; the tags of blocks are AES-256-GMAC, those of
// records and headers HMAC-SHA256. With kAesGcm blocks and records are encrypted with AES-256-GCM.
// Blocks have a key for each tenant and page, records one key.
//
// Nonces are 96 random bits; two alike under one key would let a reader forge tags of that key.
// A page that is written 2^32 times for one tenant has that risk at 2^-33, and only its own tags
// are in danger. Records have one key with encryption only, and are written as often as blocks:
// the same risk after 2^32 blocks of an identity.
//
// Numbers are little-endian.
// Pure except for nonces; one object, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/aes_gcm.h"
#include "base/hash128.h"
#include "base/hmac.h"

namespace sluice {

inline constexpr std::size_t kDiskAlignment = 4096;
inline constexpr std::size_t kRecordBytes = 128;
inline constexpr std::string_view kSegmentMagic{"sluice-kv\0segment", 17};

struct SegmentShape {
  std::uint64_t block_bytes = 0;
  std::uint32_t num_pages = 0;

  std::uint64_t page_bytes() const {
    return (block_bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
  }
  std::uint64_t records_offset() const { return kDiskAlignment; }
  std::uint64_t records_bytes() const { return num_pages * kRecordBytes; }
  std::uint64_t page_offset(std::uint32_t page) const {
    const std::uint64_t records =
        (records_bytes() + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
    return kDiskAlignment + records + page * page_bytes();
  }
  std::uint64_t record_offset(std::uint32_t page) const {
    return records_offset() + page * kRecordBytes;
  }
  std::uint64_t file_bytes() const { return page_offset(num_pages); }
  bool operator==(const SegmentShape&) const = default;
};

enum class Sealing : std::uint32_t { kTags = 0, kAesGcm = 1 };

// Names all that makes the bytes of a block what they are. Tells nothing without the secret.
using SegmentIdentity = std::array<std::byte, 16>;
SegmentIdentity segment_identity(const HmacKey& secret, Sealing sealing,
                                 std::string_view description);

using PageTag = std::array<std::byte, 16>;

// The block that a page holds.
struct PageRecord {
  Hash128 name;
  Hash128 tenant;  // whose key seals the block
  std::uint32_t group = 0;
  std::int64_t used = 0;  // Unix seconds
  AesNonce nonce{};       // of the block
  PageTag tag{};          // of the block
};

// The fields of a header as they stand in a file, not checked.
struct SegmentHeader {
  SegmentShape shape;
  Sealing sealing = Sealing::kTags;
  SegmentIdentity identity{};
};
// Nothing: no header of this version, or with a shape that no file has.
std::optional<SegmentHeader> parse_header(std::span<const std::byte> bytes);

class PageFormat {
 public:
  PageFormat(const HmacKey& secret, Sealing sealing, const SegmentIdentity& identity);

  std::array<std::byte, kDiskAlignment> encode_header(const SegmentShape& shape);
  // Whether these bytes are the header of this identity and shape.
  bool is_header(std::span<const std::byte> bytes, const SegmentShape& shape);

  // `place`: the page's number in the tier.
  std::array<std::byte, kRecordBytes> encode_record(const PageRecord& record, std::uint64_t place);
  // Nothing: empty, damaged or not ours. REQUIRES: kRecordBytes bytes.
  std::optional<PageRecord> decode_record(std::span<const std::byte> bytes, std::uint64_t place);

  // Writes the block to the first bytes of `page`, sealed, and sets the record's nonce and tag.
  // Each call takes a new nonce, so the same block has another tag.
  // REQUIRES: page.size() >= block.size().
  void seal_block(PageRecord& record, std::uint64_t place, std::span<const std::byte> block,
                  std::span<std::byte> page);
  // The other way. False: not the block of this record and place; `block` is then undefined.
  bool open_block(const PageRecord& record, std::uint64_t place, std::span<const std::byte> page,
                  std::span<std::byte> block);

 private:
  AesKey page_key(Hash128 tenant, std::uint64_t place);

  Sealing sealing_;
  SegmentIdentity identity_;
  Hmac records_;
  AesKey record_key_;
  Hmac block_keys_;
  AesGcm cipher_;
};

}  // namespace sluice
