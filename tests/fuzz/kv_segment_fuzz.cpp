// Records and headers of segments from bytes: nothing is accepted that encodes differently.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "offload/page_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sluice::PageFormat format(sluice::HmacKey{}, "model");
  const auto bytes = std::as_bytes(std::span(data, size));
  CHECK(!format.is_header(bytes, {4096, 3}) ||
        std::ranges::equal(bytes, format.encode_header({4096, 3})));
  if (size < sluice::kRecordBytes + 1) return 0;
  const std::uint64_t place = data[sluice::kRecordBytes];
  const auto raw = bytes.first(sluice::kRecordBytes);
  if (const auto record = format.decode_record(raw, place)) {
    CHECK(std::ranges::equal(raw, format.encode_record(*record, place)));
    CHECK(!format.decode_record(raw, place + 1));
  }
  // A record of the input's own fields is always accepted.
  sluice::PageRecord own;
  own.name = {static_cast<std::uint64_t>(data[0]), size};
  own.group = data[1];
  own.used = data[2];
  const auto encoded = format.encode_record(own, place);
  const auto back = format.decode_record(encoded, place);
  CHECK(back && back->name == own.name && back->group == own.group && back->used == own.used);
  return 0;
}
