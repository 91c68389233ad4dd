#include "offload/page_format.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace sluice {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderFields = 64;

template <class T>
void put(std::span<std::byte> out, std::size_t at, T value) {
  static_assert(std::is_integral_v<T>);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[at + i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

std::uint64_t get(std::span<const std::byte> in, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= static_cast<std::uint64_t>(in[at + i]) << (8 * i);
  }
  return value;
}

HmacKey key_of(const HmacKey& secret, std::string_view purpose, std::string_view identity) {
  return derive_key(secret, std::string(purpose) + '\0' + std::string(identity));
}

PageTag half(const HmacTag& tag) {
  PageTag out{};
  std::copy_n(tag.begin(), out.size(), out.begin());
  return out;
}

// Takes as long whatever differs.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace

PageFormat::PageFormat(const HmacKey& secret, std::string_view identity)
    : records_(key_of(secret, "sluice/kv-records/1", identity)),
      blocks_(key_of(secret, "sluice/kv-blocks/1", identity)) {}

std::array<std::byte, kDiskAlignment> PageFormat::encode_header(const SegmentShape& shape) {
  std::array<std::byte, kDiskAlignment> header{};
  std::memcpy(header.data(), kSegmentMagic.data(), kSegmentMagic.size());
  put(header, 24, kVersion);
  put(header, 28, shape.num_pages);
  put(header, 32, shape.block_bytes);
  records_.update(std::span(header).first(kHeaderFields));
  const HmacTag tag = records_.finish();
  std::copy(tag.begin(), tag.end(), header.begin() + kHeaderFields);
  return header;
}

bool PageFormat::is_header(std::span<const std::byte> bytes, const SegmentShape& shape) {
  const auto wanted = encode_header(shape);
  return bytes.size() == wanted.size() && equal(bytes, wanted);
}

std::array<std::byte, kRecordBytes> PageFormat::encode_record(const PageRecord& record,
                                                              std::uint64_t place) {
  std::array<std::byte, kRecordBytes> out{};
  put(out, 0, record.name.high);
  put(out, 8, record.name.low);
  put(out, 16, record.group);
  put(out, 20, kVersion);
  put(out, 24, record.used);
  std::copy(record.tag.begin(), record.tag.end(), out.begin() + 32);
  std::array<std::byte, 8> place_bytes{};
  put(place_bytes, 0, place);
  records_.update(place_bytes);
  records_.update(std::span(out).first(48));
  const PageTag tag = half(records_.finish());
  std::copy(tag.begin(), tag.end(), out.begin() + 48);
  return out;
}

std::optional<PageRecord> PageFormat::decode_record(std::span<const std::byte> bytes,
                                                    std::uint64_t place) {
  PageRecord record;
  record.name = {get(bytes, 0, 8), get(bytes, 8, 8)};
  record.group = static_cast<std::uint32_t>(get(bytes, 16, 4));
  record.used = static_cast<std::int64_t>(get(bytes, 24, 8));
  std::copy_n(bytes.begin() + 32, record.tag.size(), record.tag.begin());
  if (!equal(bytes.first(kRecordBytes), encode_record(record, place))) return std::nullopt;
  return record;
}

PageTag PageFormat::tag_of(std::span<const std::byte> block, Hash128 name, std::uint32_t group,
                           std::uint64_t place) {
  std::array<std::byte, 40> fields{};
  put(fields, 0, place);
  put(fields, 8, name.high);
  put(fields, 16, name.low);
  put(fields, 24, group);
  put(fields, 32, static_cast<std::uint64_t>(block.size()));
  blocks_.update(fields);
  blocks_.update(block);
  return half(blocks_.finish());
}

}  // namespace sluice
