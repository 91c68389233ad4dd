#include "offload/page_format.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

constexpr Hash128 kName{1, 2};

TEST(PageFormat, RecordsComeBackAndEveryFlippedBitIsFound) {
  const HmacKey secret{std::byte{7}};
  PageFormat format(secret, "model");
  PageRecord record{kName, 3, 1'700'000'000, {}};
  record.tag[0] = std::byte{9};
  const auto bytes = format.encode_record(record, 5);
  const auto back = format.decode_record(bytes, 5);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->name, record.name);
  EXPECT_EQ(back->group, record.group);
  EXPECT_EQ(back->used, record.used);
  EXPECT_EQ(back->tag, record.tag);
  EXPECT_FALSE(format.decode_record(bytes, 6)) << "a record of another place";
  EXPECT_FALSE(PageFormat(secret, "other").decode_record(bytes, 5));
  EXPECT_FALSE(PageFormat(HmacKey{}, "model").decode_record(bytes, 5));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(format.decode_record(damaged, 5)) << "bit " << bit;
  }
}

TEST(PageFormat, HeadersFitOneShapeAndOneIdentity) {
  PageFormat format(HmacKey{}, "model");
  const SegmentShape shape{5000, 7};
  const auto header = format.encode_header(shape);
  EXPECT_TRUE(format.is_header(header, shape));
  EXPECT_FALSE(format.is_header(header, {5000, 8}));
  EXPECT_FALSE(format.is_header(header, {5001, 7}));
  EXPECT_FALSE(format.is_header(std::span(header).first(100), shape));
  EXPECT_FALSE(PageFormat(HmacKey{}, "other").is_header(header, shape));
  for (std::size_t i = 0; i < 96; ++i) {
    auto damaged = header;
    damaged[i] ^= std::byte{0x10};
    EXPECT_FALSE(format.is_header(damaged, shape)) << "byte " << i;
  }
}

TEST(PageFormat, ABlocksTagHasItsNameGroupPlaceAndLength) {
  PageFormat format(HmacKey{}, "model");
  std::vector<std::byte> block(100, std::byte{1});
  const PageTag tag = format.tag_of(block, kName, 1, 2);
  EXPECT_EQ(tag, format.tag_of(block, kName, 1, 2));
  EXPECT_NE(tag, format.tag_of(block, {1, 3}, 1, 2));
  EXPECT_NE(tag, format.tag_of(block, kName, 2, 2));
  EXPECT_NE(tag, format.tag_of(block, kName, 1, 3));
  EXPECT_NE(tag, format.tag_of(std::span(block).first(99), kName, 1, 2));
  block[50] = std::byte{2};
  EXPECT_NE(tag, format.tag_of(block, kName, 1, 2));
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
