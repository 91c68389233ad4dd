#include "offload/segment_check.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace sluice {
namespace {

bool holds_block(const PageRecord& record) { return record.name != Hash128{}; }

// Counts the blocks of the pages that have a record.
Status check_pages(std::uint64_t bytes, ReadSegment read, const SegmentShape& shape,
                   const SegmentRecords& found, std::uint64_t first_place, PageFormat& format,
                   SegmentCounts& counts) {
  // Allocated when there is a page in the file, so that its size bounds the memory.
  std::vector<std::byte> page;
  std::vector<std::byte> block;
  for (std::uint32_t i = 0; i < shape.num_pages; ++i) {
    const PageRecord& record = found.records[i];
    if (!holds_block(record)) continue;
    const std::uint64_t offset = shape.page_offset(i);
    if (offset + shape.page_bytes() > bytes) {
      ++counts.torn;
      continue;
    }
    page.resize(shape.page_bytes());
    block.resize(shape.block_bytes);
    if (!read(page, offset)) return unavailable("a page cannot be read");
    ++(format.open_block(record, first_place + i, page, block) ? counts.good : counts.bad);
  }
  return {};
}

}  // namespace

SegmentRecords decode_records(std::span<const std::byte> table, std::uint64_t first_place,
                              PageFormat& format) {
  CHECK(table.size() % kRecordBytes == 0);
  SegmentRecords found;
  found.records.resize(table.size() / kRecordBytes);
  for (std::size_t i = 0; i < found.records.size(); ++i) {
    const auto raw = table.subspan(i * kRecordBytes, kRecordBytes);
    if (std::ranges::all_of(raw, [](std::byte b) { return b == std::byte{0}; })) continue;
    if (const auto record = format.decode_record(raw, first_place + i)) {
      found.records[i] = *record;
    } else {
      ++found.damaged;
    }
  }
  return found;
}

Result<SegmentCounts> check_segment(std::uint64_t bytes, ReadSegment read, std::uint64_t number,
                                    const HmacKey& secret) {
  std::vector<std::byte> head(kDiskAlignment);
  if (bytes < head.size()) return invalid_argument("is too short for a segment");
  if (!read(head, 0)) return unavailable("the header cannot be read");
  const auto header = parse_header(head);
  if (!header) return invalid_argument("is no segment of this version");
  const SegmentShape& shape = header->shape;
  PageFormat format(secret, header->sealing, header->identity);
  if (!format.is_header(head, shape)) {
    return invalid_argument("has a damaged header, or was made under another secret or key");
  }
  if (bytes < shape.page_offset(0)) return invalid_argument("ends within its records");
  std::vector<std::byte> table(shape.records_bytes());
  if (!read(table, shape.records_offset())) return unavailable("the records cannot be read");
  const std::uint64_t first_place = number * shape.num_pages;
  const SegmentRecords found = decode_records(table, first_place, format);
  SegmentCounts counts;
  counts.torn = found.damaged;
  RETURN_IF_ERROR(check_pages(bytes, read, shape, found, first_place, format, counts));
  counts.empty = shape.num_pages - counts.good - counts.bad - counts.torn;
  return counts;
}

}  // namespace sluice
