// Reads a whole segment (page_format.h) and says which of its blocks a load would accept.
// Function; any thread. Memory: the records and one page. Errors say what the file is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/hmac.h"
#include "base/result.h"
#include "offload/page_format.h"

namespace sluice {

// Fills the span from a place of the file on. False: it cannot be read.
using ReadSegment = FunctionRef<bool(std::span<std::byte>, std::uint64_t)>;

// Pages.
struct SegmentCounts {
  std::int64_t good = 0;
  std::int64_t bad = 0;   // a record, but not its block
  std::int64_t torn = 0;  // a damaged record, or a page beyond the end of the file
  std::int64_t empty = 0;
};

// The records of a segment, by page. Pages without a block have no name.
struct SegmentRecords {
  std::vector<PageRecord> records;
  std::int32_t damaged = 0;
};
// `table`: the bytes of the records; `first_place`: the place of the first page.
SegmentRecords decode_records(std::span<const std::byte> table, std::uint64_t first_place,
                              PageFormat& format);

// `bytes`: of the file, beyond which nothing is read. `number`: of the segment in its folder.
// kUnavailable: it cannot be read; kInvalidArgument: no segment of this version, or not one that
// was made under this secret.
Result<SegmentCounts> check_segment(std::uint64_t bytes, ReadSegment read, std::uint64_t number,
                                    const HmacKey& secret);

}  // namespace sluice
