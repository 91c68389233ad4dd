#include "offload/page_writes.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

PageWrites::PageWrites(const SegmentShape& shape)
    : shape_(shape),
      most_(static_cast<std::size_t>(std::max<std::uint64_t>(kMostBytes / shape.page_bytes(), 1))),
      pages_(make_aligned_buffer(most_ * shape.page_bytes(), kDiskAlignment)) {
  records_.reserve(most_);
  encoded_.reserve(most_ * kRecordBytes);
}

void PageWrites::begin(std::uint64_t number, std::uint32_t in_segment) {
  number_ = number;
  in_segment_ = in_segment;
  records_.clear();
  encoded_.clear();
}

void PageWrites::add(PageRecord record, std::span<const std::byte> block, PageFormat& format) {
  CHECK(records_.size() < most_);
  const std::uint64_t number = number_ + records_.size();
  const auto page_bytes = static_cast<std::size_t>(shape_.page_bytes());
  format.seal_block(record, number, block,
                    {pages_.get() + records_.size() * page_bytes, page_bytes});
  const auto encoded = format.encode_record(record, number);
  encoded_.insert(encoded_.end(), encoded.begin(), encoded.end());
  records_.push_back(record);
}

bool PageWrites::write(const FileIo& io, const Segment& segment) const {
  const std::span<const std::byte> pages(pages_.get(), static_cast<std::size_t>(bytes()));
  return io.write(segment.pages.get(), pages, shape_.page_offset(in_segment_)) &&
         io.write(segment.records.get(), encoded_, shape_.record_offset(in_segment_));
}

}  // namespace sluice
