// PageWrites: the blocks that one thread of a tier saves with one write. They lie in pages behind
// each other, so their pages are one range of the segment's file, and so are their records. A write
// costs tens of microseconds of CPU time however small it is, which is as much as a step of a small
// model; so one write of many small blocks displaces fewer steps.
//
//   writes.begin(segment, first_page); writes.add(record, block, format); ...; writes.write(io)
//
// Owner: a thread of DiskTier. Threads: one. Units: at most kMostBytes, or one page if a page is
// larger. Allocation: none after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/aligned_buffer.h"
#include "offload/file_io.h"
#include "offload/page_format.h"
#include "offload/segment_file.h"

namespace sluice {

class PageWrites {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 10;

  explicit PageWrites(const SegmentShape& shape);

  std::size_t most() const { return most_; }  // blocks in one write

  // Forgets the blocks before. `number` is the first page's in the tier, `in_segment` in its file.
  void begin(std::uint64_t number, std::uint32_t in_segment);
  // Seals the block of the next page, and sets the record's nonce and tag. REQUIRES: less than
  // most() blocks.
  void add(PageRecord record, std::span<const std::byte> block, PageFormat& format);
  // Writes the pages, then their records. False leaves the cause in errno.
  bool write(const FileIo& io, const Segment& segment) const;

  // The blocks' records, in the order of their pages.
  std::span<const PageRecord> records() const { return records_; }
  std::uint64_t bytes() const { return records_.size() * shape_.page_bytes(); }

 private:
  const SegmentShape shape_;
  const std::size_t most_;
  AlignedBuffer pages_;  // the padding behind each block stays zeros
  std::vector<PageRecord> records_;
  std::vector<std::byte> encoded_;  // the records, encoded
  std::uint64_t number_ = 0;
  std::uint32_t in_segment_ = 0;
};

}  // namespace sluice
