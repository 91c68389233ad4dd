// Whole segments from bytes: the reader neither crashes nor reads beyond the file, and every page
// is counted once. The input's first byte says which tags are made right before the file is read,
// so that damaged fields reach the code behind the checks: 1, the header's; 2, those of the
// records of unencrypted segments. The rest is the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "offload/segment_check.h"

namespace sluice {
namespace {

constexpr std::uint64_t kNumber = 1;

void repair_records(std::span<std::byte> file, const SegmentShape& shape, PageFormat& format) {
  for (std::uint32_t i = 0; i < shape.num_pages; ++i) {
    const std::uint64_t at = shape.records_offset() + i * kRecordBytes;
    if (at + kRecordBytes > file.size()) return;
    const auto raw = file.subspan(at, kRecordBytes);
    if (std::ranges::all_of(raw, [](std::byte b) { return b == std::byte{0}; })) continue;
    PageRecord record;
    std::memcpy(&record.name, raw.data() + 16, sizeof(record.name));
    record.group = static_cast<std::uint32_t>(raw[56]);
    std::memcpy(record.tag.data(), raw.data() + 80, record.tag.size());
    std::ranges::copy(format.encode_record(record, kNumber * shape.num_pages + i), raw.begin());
  }
}

void repair(std::span<std::byte> file, std::uint8_t what) {
  if (file.size() < kDiskAlignment) return;
  const auto header = parse_header(file);
  if (!header) return;
  PageFormat format(HmacKey{}, header->sealing, header->identity);
  if ((what & 1U) != 0) {
    std::ranges::copy(format.encode_header(header->shape), file.begin());
    CHECK(format.is_header(file.first(kDiskAlignment), header->shape));
  }
  if ((what & 2U) != 0) repair_records(file, header->shape, format);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> file(input.begin(), input.end());
  sluice::repair(file, data[0]);
  const auto read = [&](std::span<std::byte> bytes, std::uint64_t offset) {
    CHECK(offset <= file.size() && bytes.size() <= file.size() - offset);
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return true;
  };
  const auto counts = sluice::check_segment(file.size(), read, sluice::kNumber, sluice::HmacKey{});
  if (!counts) return 0;
  const auto header = sluice::parse_header(file);
  CHECK(header && counts->good >= 0 && counts->bad >= 0 && counts->torn >= 0);
  CHECK(counts->good + counts->bad + counts->torn + counts->empty ==
        std::int64_t{header->shape.num_pages});
  return 0;
}
