// The format of a segment: a file with a fixed number of pages, each with one KV block.
//
//   header   4096 bytes: magic, version, page and block bytes, pages, the tag of all before
//   records  64 bytes for each page, padded to 4096: what the page holds
//   pages    page_bytes each, from a multiple of 4096 on
//
// A record is written after its page. Its first tag covers the record's own fields, so that a start
// reads records only; its second one covers the block, its name, its group and its place, so that a
// load accepts nothing but what was saved. All tags are HMACs with keys of the engine's identity:
// segments of another model, or of another secret, are not ours. Numbers are little-endian.
// Pure; one object, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/hash128.h"
#include "base/hmac.h"

namespace sluice {

inline constexpr std::size_t kDiskAlignment = 4096;
inline constexpr std::size_t kRecordBytes = 64;
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
  std::uint64_t file_bytes() const { return page_offset(num_pages); }
};

using PageTag = std::array<std::byte, 16>;

// The block that a page holds.
struct PageRecord {
  Hash128 name;
  std::uint32_t group = 0;
  std::int64_t used = 0;  // Unix seconds
  PageTag tag{};          // of the block
};

class PageFormat {
 public:
  // `identity`: all that makes the bytes of a block what they are.
  PageFormat(const HmacKey& secret, std::string_view identity);

  std::array<std::byte, kDiskAlignment> encode_header(const SegmentShape& shape);
  // Nothing: not a header of this identity and shape.
  bool is_header(std::span<const std::byte> bytes, const SegmentShape& shape);

  // `place`: the page's number in the tier.
  std::array<std::byte, kRecordBytes> encode_record(const PageRecord& record, std::uint64_t place);
  // Nothing: empty, damaged or not ours.
  std::optional<PageRecord> decode_record(std::span<const std::byte> bytes, std::uint64_t place);

  PageTag tag_of(std::span<const std::byte> block, Hash128 name, std::uint32_t group,
                 std::uint64_t place);

 private:
  Hmac records_;
  Hmac blocks_;
};

}  // namespace sluice
