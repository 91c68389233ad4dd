#include "offload/page_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

constexpr Hash128 kName{1, 2};

constexpr Sealing kBoth[] = {Sealing::kTags, Sealing::kAesGcm};

PageFormat make_format(Sealing sealing, const HmacKey& secret = {},
                       std::string_view model = "model") {
  return {secret, sealing, segment_identity(secret, sealing, model)};
}

TEST(PageFormat, RecordsComeBackAndEveryFlippedBitIsFound) {
  const HmacKey secret{std::byte{7}};
  for (const Sealing sealing : kBoth) {
    PageFormat format = make_format(sealing, secret);
    PageRecord record{kName, {3, 4}, 3, 1'700'000'000, {}, {}};
    record.nonce[11] = std::byte{8};
    record.tag[0] = std::byte{9};
    const auto bytes = format.encode_record(record, 5);
    const auto back = format.decode_record(bytes, 5);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->name, record.name);
    EXPECT_EQ(back->tenant, record.tenant);
    EXPECT_EQ(back->group, record.group);
    EXPECT_EQ(back->used, record.used);
    EXPECT_EQ(back->nonce, record.nonce);
    EXPECT_EQ(back->tag, record.tag);
    EXPECT_FALSE(format.decode_record(bytes, 6)) << "a record of another place";
    EXPECT_FALSE(make_format(sealing, secret, "other").decode_record(bytes, 5));
    EXPECT_FALSE(make_format(sealing).decode_record(bytes, 5));
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      auto damaged = bytes;
      damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      EXPECT_FALSE(format.decode_record(damaged, 5)) << "bit " << bit;
    }
  }
}

TEST(PageFormat, HeadersFitOneShapeAndOneIdentity) {
  for (const Sealing sealing : kBoth) {
    PageFormat format = make_format(sealing);
    const SegmentShape shape{5000, 7};
    const auto header = format.encode_header(shape);
    EXPECT_TRUE(format.is_header(header, shape));
    EXPECT_FALSE(format.is_header(header, {5000, 8}));
    EXPECT_FALSE(format.is_header(header, {5001, 7}));
    EXPECT_FALSE(format.is_header(std::span(header).first(100), shape));
    EXPECT_FALSE(make_format(sealing, {}, "other").is_header(header, shape));
    EXPECT_FALSE(make_format(sealing, HmacKey{std::byte{1}}).is_header(header, shape));
    const auto parsed = parse_header(header);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->shape, shape);
    EXPECT_EQ(parsed->sealing, sealing);
    EXPECT_EQ(parsed->identity, segment_identity({}, sealing, "model"));
    for (std::size_t i = 0; i < 96; ++i) {
      auto damaged = header;
      damaged[i] ^= std::byte{0x10};
      EXPECT_FALSE(format.is_header(damaged, shape)) << "byte " << i;
    }
  }
}

TEST(PageFormat, ShapesThatNoFileHasAreRefused) {
  PageFormat format = make_format(Sealing::kTags);
  for (const SegmentShape shape :
       {SegmentShape{0, 1}, SegmentShape{1, 0}, SegmentShape{std::uint64_t{1} << 41, 1},
        SegmentShape{1, (1U << 30) + 1}, SegmentShape{std::uint64_t{1} << 40, 1U << 30}}) {
    EXPECT_FALSE(parse_header(format.encode_header(shape)));
  }
}

TEST(PageFormat, ABlockOpensUnderItsNameGroupPlaceAndTenantOnly) {
  for (const Sealing sealing : kBoth) {
    PageFormat format = make_format(sealing);
    const std::vector<std::byte> block(100, std::byte{1});
    std::vector<std::byte> page(120);
    PageRecord record{kName, {1, 1}, 1, 0, {}, {}};
    format.seal_block(record, 2, block, page);
    EXPECT_EQ(std::equal(block.begin(), block.end(), page.begin()), sealing == Sealing::kTags);
    std::vector<std::byte> back(100);
    const auto opens = [&](const PageRecord& as, std::uint64_t place) {
      return format.open_block(as, place, page, back);
    };
    ASSERT_TRUE(opens(record, 2));
    EXPECT_EQ(back, block);
    EXPECT_FALSE(opens(record, 3));
    PageRecord other = record;
    other.name.low = 3;
    EXPECT_FALSE(opens(other, 2));
    other = record;
    other.group = 2;
    EXPECT_FALSE(opens(other, 2));
    other = record;
    other.tenant.low = 2;
    EXPECT_EQ(opens(other, 2), sealing == Sealing::kTags) << "only encryption has keys of tenants";
    back.resize(99);
    EXPECT_FALSE(opens(record, 2)) << "another length";
    back.resize(100);
    page[50] ^= std::byte{1};
    EXPECT_FALSE(opens(record, 2));
  }
}

TEST(PageFormat, TheSameBlockIsNeverSealedTwiceAlike) {
  PageFormat format = make_format(Sealing::kAesGcm);
  const std::vector<std::byte> block(100, std::byte{1});
  std::vector<std::byte> first(100);
  std::vector<std::byte> second(100);
  PageRecord record{kName, {}, 1, 0, {}, {}};
  format.seal_block(record, 2, block, first);
  format.seal_block(record, 2, block, second);
  EXPECT_NE(first, second);
  EXPECT_NE(format.encode_record(record, 2), format.encode_record(record, 2));
}

TEST(PageFormat, PagesAreAlignedAndDoNotOverlap) {
  for (const SegmentShape shape : {SegmentShape{1, 1}, SegmentShape{4096, 64},
                                   SegmentShape{4097, 65}, SegmentShape{12288, 1000}}) {
    EXPECT_GE(shape.page_offset(0), shape.records_offset() + shape.records_bytes());
    EXPECT_GE(shape.page_bytes(), shape.block_bytes);
    for (const std::uint32_t page : {0U, shape.num_pages - 1}) {
      EXPECT_EQ(shape.page_offset(page) % kDiskAlignment, 0U);
      EXPECT_EQ(shape.page_offset(page + 1), shape.page_offset(page) + shape.page_bytes());
    }
  }
}

}  // namespace
}  // namespace sluice
