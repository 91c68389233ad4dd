#include "offload/page_format.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kHeaderFields = 64;
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 40;
constexpr std::uint32_t kMaxPages = 1U << 30;

// A record: nonce, version, sealed fields, tag.
constexpr std::size_t kOpenFields = 16;
constexpr std::size_t kSealedFields = 96;
static_assert(kOpenFields + kSealedFields + sizeof(PageTag) == kRecordBytes);

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

template <class T>
T array_at(std::span<const std::byte> in, std::size_t at) {
  T out{};
  std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(at), out.size(), out.begin());
  return out;
}

HmacKey key_of(const HmacKey& secret, std::string_view purpose, const SegmentIdentity& identity) {
  return derive_key(
      secret, std::string(purpose) + '\0' +
                  std::string(reinterpret_cast<const char*>(identity.data()), identity.size()));
}

PageTag half(const HmacTag& tag) {
  PageTag out{};
  std::copy_n(tag.begin(), out.size(), out.begin());
  return out;
}

using Fields = std::array<std::byte, kSealedFields>;

Fields fields_of(const PageRecord& record) {
  Fields out{};
  put(out, 0, record.name.high);
  put(out, 8, record.name.low);
  put(out, 16, record.tenant.high);
  put(out, 24, record.tenant.low);
  put(out, 32, record.used);
  put(out, 40, record.group);
  std::ranges::copy(record.nonce, out.begin() + 48);
  std::ranges::copy(record.tag, out.begin() + 64);
  return out;
}

PageRecord record_of(const Fields& in) {
  PageRecord record;
  record.name = {get(in, 0, 8), get(in, 8, 8)};
  record.tenant = {get(in, 16, 8), get(in, 24, 8)};
  record.used = static_cast<std::int64_t>(get(in, 32, 8));
  record.group = static_cast<std::uint32_t>(get(in, 40, 4));
  record.nonce = array_at<AesNonce>(in, 48);
  record.tag = array_at<PageTag>(in, 64);
  return record;
}

// Beside a sealed record: its place, nonce and version.
std::array<std::byte, 8 + kOpenFields> beside_record(std::span<const std::byte> record,
                                                     std::uint64_t place) {
  std::array<std::byte, 8 + kOpenFields> out{};
  put(out, 0, place);
  std::ranges::copy(record.first(kOpenFields), out.begin() + 8);
  return out;
}

std::array<std::byte, 40> beside_block(const PageRecord& record, std::uint64_t place,
                                       std::size_t bytes) {
  std::array<std::byte, 40> out{};
  put(out, 0, place);
  put(out, 8, record.name.high);
  put(out, 16, record.name.low);
  put(out, 24, record.group);
  put(out, 32, std::uint64_t{bytes});
  return out;
}

}  // namespace

SegmentIdentity segment_identity(const HmacKey& secret, Sealing sealing,
                                 std::string_view description) {
  Hmac hmac(derive_key(secret, sealing == Sealing::kAesGcm ? "sluice/kv-identity/3/aes-256-gcm"
                                                           : "sluice/kv-identity/3"));
  hmac.update(std::as_bytes(std::span(description)));
  return half(hmac.finish());
}

std::optional<SegmentHeader> parse_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kDiskAlignment ||
      std::memcmp(bytes.data(), kSegmentMagic.data(), kSegmentMagic.size()) != 0 ||
      get(bytes, 24, 4) != kVersion) {
    return std::nullopt;
  }
  SegmentHeader header;
  header.shape.num_pages = static_cast<std::uint32_t>(get(bytes, 28, 4));
  header.shape.block_bytes = get(bytes, 32, 8);
  const std::uint64_t sealing = get(bytes, 40, 4);
  if (header.shape.num_pages == 0 || header.shape.num_pages > kMaxPages ||
      header.shape.block_bytes == 0 || header.shape.block_bytes > kMaxBlockBytes || sealing > 1) {
    return std::nullopt;
  }
  // The largest shape has 2^70 bytes; no file does.
  if (header.shape.page_bytes() > (std::uint64_t{1} << 60) / header.shape.num_pages) {
    return std::nullopt;
  }
  header.sealing = static_cast<Sealing>(sealing);
  header.identity = array_at<SegmentIdentity>(bytes, 48);
  return header;
}

PageFormat::PageFormat(const HmacKey& secret, Sealing sealing, const SegmentIdentity& identity)
    : sealing_(sealing),
      identity_(identity),
      records_(key_of(secret, "sluice/kv-records/3", identity)),
      record_key_(key_of(secret, "sluice/kv-record-aes/3", identity)),
      block_keys_(key_of(secret, "sluice/kv-block-aes/3", identity)) {}

std::array<std::byte, kDiskAlignment> PageFormat::encode_header(const SegmentShape& shape) {
  std::array<std::byte, kDiskAlignment> header{};
  std::memcpy(header.data(), kSegmentMagic.data(), kSegmentMagic.size());
  put(header, 24, kVersion);
  put(header, 28, shape.num_pages);
  put(header, 32, shape.block_bytes);
  put(header, 40, static_cast<std::uint32_t>(sealing_));
  std::ranges::copy(identity_, header.begin() + 48);
  records_.update(std::span(header).first(kHeaderFields));
  const HmacTag tag = records_.finish();
  std::copy(tag.begin(), tag.end(), header.begin() + kHeaderFields);
  return header;
}

bool PageFormat::is_header(std::span<const std::byte> bytes, const SegmentShape& shape) {
  const auto wanted = encode_header(shape);
  return bytes.size() == wanted.size() && equal_in_constant_time(bytes, wanted);
}

std::array<std::byte, kRecordBytes> PageFormat::encode_record(const PageRecord& record,
                                                              std::uint64_t place) {
  std::array<std::byte, kRecordBytes> out{};
  const Fields fields = fields_of(record);
  const auto sealed = std::span(out).subspan(kOpenFields, kSealedFields);
  put(out, 12, kVersion);
  PageTag tag{};
  if (sealing_ == Sealing::kAesGcm) {
    const AesNonce nonce = random_nonce();
    std::ranges::copy(nonce, out.begin());
    tag = cipher_.seal(record_key_, nonce, beside_record(out, place), fields, sealed);
  } else {
    std::ranges::copy(fields, sealed.begin());
    records_.update(beside_record(out, place));
    records_.update(sealed);
    tag = half(records_.finish());
  }
  std::ranges::copy(tag, out.begin() + kOpenFields + kSealedFields);
  return out;
}

std::optional<PageRecord> PageFormat::decode_record(std::span<const std::byte> bytes,
                                                    std::uint64_t place) {
  CHECK(bytes.size() == kRecordBytes);
  if (get(bytes, 12, 4) != kVersion) return std::nullopt;
  const auto sealed = bytes.subspan(kOpenFields, kSealedFields);
  const auto tag = array_at<PageTag>(bytes, kOpenFields + kSealedFields);
  Fields fields{};
  if (sealing_ == Sealing::kAesGcm) {
    if (!cipher_.open(record_key_, array_at<AesNonce>(bytes, 0), beside_record(bytes, place),
                      sealed, tag, fields)) {
      return std::nullopt;
    }
    return record_of(fields);
  }
  records_.update(beside_record(bytes, place));
  records_.update(sealed);
  if (!equal_in_constant_time(tag, half(records_.finish()))) return std::nullopt;
  std::ranges::copy(sealed, fields.begin());
  return record_of(fields);
}

AesKey PageFormat::page_key(Hash128 tenant, std::uint64_t place) {
  std::array<char, 24> bytes{};
  const auto view = std::as_writable_bytes(std::span(bytes));
  put(view, 0, tenant.high);
  put(view, 8, tenant.low);
  put(view, 16, place);
  return derive_key(block_keys_, std::string_view(bytes.data(), bytes.size()));
}

void PageFormat::seal_block(PageRecord& record, std::uint64_t place,
                            std::span<const std::byte> block, std::span<std::byte> page) {
  const std::span<std::byte> sealed = page.first(block.size());
  const AesKey key = page_key(record.tenant, place);
  const auto beside = beside_block(record, place, block.size());
  record.nonce = random_nonce();
  record.tag = sealing_ == Sealing::kAesGcm
                   ? cipher_.seal(key, record.nonce, beside, block, sealed)
                   : cipher_.copy_with_tag(key, record.nonce, beside, block, sealed);
}

bool PageFormat::open_block(const PageRecord& record, std::uint64_t place,
                            std::span<const std::byte> page, std::span<std::byte> block) {
  const std::span<const std::byte> sealed = page.first(block.size());
  const AesKey key = page_key(record.tenant, place);
  const auto beside = beside_block(record, place, block.size());
  if (sealing_ == Sealing::kAesGcm) {
    return cipher_.open(key, record.nonce, beside, sealed, record.tag, block);
  }
  return equal_in_constant_time(record.tag,
                                cipher_.copy_with_tag(key, record.nonce, beside, sealed, block));
}

}  // namespace sluice
