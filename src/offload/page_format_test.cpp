#include "offload/page_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
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

std::vector<std::byte> bytes_of(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
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
    EXPECT_FALSE(opens(other, 2)) << "each tenant has keys of its own";
    other = record;
    other.nonce[0] ^= std::byte{1};
    EXPECT_FALSE(opens(other, 2));
    other = record;
    other.tag[15] ^= std::byte{1};
    EXPECT_FALSE(opens(other, 2));
    back.resize(99);
    EXPECT_FALSE(opens(record, 2)) << "another length";
    back.resize(100);
    page[50] ^= std::byte{1};
    EXPECT_FALSE(opens(record, 2));
  }
}

TEST(PageFormat, TheSameBlockIsNeverSealedTwiceAlike) {
  const std::vector<std::byte> block(100, std::byte{1});
  for (const Sealing sealing : kBoth) {
    PageFormat format = make_format(sealing);
    std::set<std::vector<std::byte>> pages;
    std::set<PageTag> tags;
    std::set<AesNonce> nonces;
    constexpr std::size_t kTimes = 1000;
    for (std::size_t i = 0; i < kTimes; ++i) {
      PageRecord record{kName, {}, 1, 0, {}, {}};
      std::vector<std::byte> page(100);
      format.seal_block(record, 2, block, page);
      pages.insert(page);
      tags.insert(record.tag);
      nonces.insert(record.nonce);
    }
    EXPECT_EQ(pages.size(), sealing == Sealing::kTags ? 1 : kTimes);
    EXPECT_EQ(tags.size(), kTimes);
    EXPECT_EQ(nonces.size(), kTimes);
  }
  PageFormat format = make_format(Sealing::kAesGcm);
  const PageRecord record{kName, {}, 1, 0, {}, {}};
  EXPECT_NE(format.encode_record(record, 2), format.encode_record(record, 2));
}

// Version 3 as another program makes it, with Python's hmac and cryptography.AESGCM. A derived key
// is HMAC-SHA256(key, label + 0x01): of the secret and the label of an identity, or of the blocks'
// key, and of that and tenant and place for a page.
TEST(PageFormat, BlocksOfAnotherImplementationOpen) {
  struct Golden {
    Sealing sealing;
    std::string_view identity, tag, page;
  };
  constexpr Golden kGolden[] = {
      {Sealing::kTags, "93dbeafc000b53ad18ddb8de68de7232", "6231d35ed6d3be12d763053f235f7ab7",
       "00070e151c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d9e0e7eef5fc030a1118"
       "1f262d343b424950575e656c737a81888f969da4abb2b9c0c7ced5dce3eaf1f8ff060d141b22293037"
       "3e454c535a61686f767d848b9299a0a7aeb5"},
      {Sealing::kAesGcm, "2c678fbad729ca8fadbdd6e5ba2fbe86", "964a5565d206849b7a319ce364fdb6a9",
       "fa4f68a87c0bb24f7e36c9def2462578f343a8feaf4104b90c132abd677aa5b516ac92ed89e552ecde"
       "f767d511b0499f45eebc7e49660912873de54d2cde3547779a91ca649fd9b0dd7f287145308d1cdb84"
       "6210d9b4debf4ebaea6a34606a990fb20ce2"}};
  HmacKey secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i);
  for (const Golden& golden : kGolden) {
    PageFormat format = make_format(golden.sealing, secret);
    const auto identity = segment_identity(secret, golden.sealing, "model");
    EXPECT_TRUE(std::ranges::equal(identity, bytes_of(golden.identity)));
    PageRecord record{.name = {1, 2}, .tenant = {3, 4}, .group = 6};
    for (std::size_t i = 0; i < record.nonce.size(); ++i) {
      record.nonce[i] = static_cast<std::byte>(100 + i);
    }
    std::ranges::copy(bytes_of(golden.tag), record.tag.begin());
    std::vector<std::byte> block(100);
    ASSERT_TRUE(format.open_block(record, 5, bytes_of(golden.page), block));
    for (std::size_t i = 0; i < block.size(); ++i) {
      EXPECT_EQ(block[i], static_cast<std::byte>(i * 7 % 256));
    }
  }
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
