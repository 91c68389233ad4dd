// Whole segments: the right blocks are good, and every flipped bit, cut and moved page is found.
#include "offload/segment_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sluice {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr SegmentShape kShape{5000, 5};
constexpr std::uint64_t kNumber = 3;

// Three blocks, in the pages 0, 1 and 3.
Bytes make_segment(const HmacKey& secret, Sealing sealing) {
  PageFormat format(secret, sealing, segment_identity(secret, sealing, "model"));
  Bytes file(kShape.file_bytes());
  std::ranges::copy(format.encode_header(kShape), file.begin());
  for (const std::uint32_t page : {0U, 1U, 3U}) {
    const std::uint64_t place = kNumber * kShape.num_pages + page;
    PageRecord record;
    record.name = {page + 1, 7};
    record.tenant = {page % 2, 0};
    record.used = 1'700'000'000;
    const Bytes block(kShape.block_bytes, static_cast<std::byte>(page + 1));
    format.seal_block(record, place, block, std::span(file).subspan(kShape.page_offset(page)));
    const auto encoded = format.encode_record(record, place);
    std::ranges::copy(encoded, file.begin() + static_cast<std::ptrdiff_t>(kShape.records_offset() +
                                                                          page * kRecordBytes));
  }
  return file;
}

Result<SegmentCounts> check(const Bytes& file, const HmacKey& secret,
                            std::uint64_t number = kNumber) {
  const auto read = [&](std::span<std::byte> bytes, std::uint64_t offset) {
    EXPECT_LE(offset + bytes.size(), file.size());
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return true;
  };
  return check_segment(file.size(), read, number, secret);
}

class SegmentCheckTest : public testing::TestWithParam<Sealing> {
 protected:
  const HmacKey secret_{std::byte{5}};
  Bytes file_ = make_segment(secret_, GetParam());
};

TEST_P(SegmentCheckTest, GoodBlocksAndEmptyPages) {
  const auto counts = check(file_, secret_);
  ASSERT_TRUE(counts) << counts.error().message;
  EXPECT_EQ(counts->good, 3);
  EXPECT_EQ(counts->bad, 0);
  EXPECT_EQ(counts->torn, 0);
  EXPECT_EQ(counts->empty, 2);
}

TEST_P(SegmentCheckTest, EncryptedBlocksCannotBeRead) {
  const Bytes block(100, std::byte{1});
  const bool found = !std::ranges::search(file_, block).empty();
  EXPECT_EQ(found, GetParam() == Sealing::kTags);
}

TEST_P(SegmentCheckTest, EveryFlippedBitOfTheHeadersFieldsRefusesTheFile) {
  for (std::size_t bit = 0; bit < 8 * std::size_t{96}; ++bit) {
    Bytes damaged = file_;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(check(damaged, secret_)) << "byte " << bit / 8;
  }
}

TEST_P(SegmentCheckTest, EveryFlippedBitOfARecordTearsItsPageAlone) {
  const std::size_t at = kShape.records_offset() + kRecordBytes;
  for (std::size_t bit = 0; bit < 8 * kRecordBytes; ++bit) {
    Bytes damaged = file_;
    damaged[at + bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const auto counts = check(damaged, secret_);
    ASSERT_TRUE(counts);
    EXPECT_EQ(counts->good, 2) << "byte " << bit / 8;
    EXPECT_EQ(counts->torn, 1);
  }
}

TEST_P(SegmentCheckTest, FlippedBitsOfABlockMakeItBad) {
  for (std::size_t at = 0; at < kShape.block_bytes; at += 499) {
    Bytes damaged = file_;
    damaged[kShape.page_offset(3) + at] ^= std::byte{0x20};
    const auto counts = check(damaged, secret_);
    ASSERT_TRUE(counts);
    EXPECT_EQ(counts->good, 2);
    EXPECT_EQ(counts->bad, 1);
  }
}

TEST_P(SegmentCheckTest, MovedPagesAndSegmentsAreFound) {
  Bytes moved = file_;
  const auto page = std::span(moved).subspan(kShape.page_offset(0), kShape.page_bytes());
  std::ranges::copy(page, moved.begin() + static_cast<std::ptrdiff_t>(kShape.page_offset(1)));
  EXPECT_EQ(check(moved, secret_)->bad, 1);
  const auto record = std::span(moved).subspan(kShape.records_offset(), kRecordBytes);
  std::ranges::copy(
      record, moved.begin() + static_cast<std::ptrdiff_t>(kShape.records_offset() + kRecordBytes));
  EXPECT_EQ(check(moved, secret_)->torn, 1) << "page and record moved together";
  EXPECT_EQ(check(file_, secret_, kNumber + 1)->torn, 3) << "a file with another number";
}

TEST_P(SegmentCheckTest, CutFilesLoseTheirTail) {
  Bytes cut = file_;
  cut.resize(kShape.page_offset(1) + 10);
  auto counts = check(cut, secret_);
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->good, 1);
  EXPECT_EQ(counts->torn, 2);
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{4095}, std::uint64_t{4096}, kShape.page_offset(0) - 1}) {
    cut.resize(bytes);
    EXPECT_FALSE(check(cut, secret_)) << bytes;
  }
}

TEST_P(SegmentCheckTest, AnotherSecretOrVersionIsNamed) {
  const auto other = check(file_, HmacKey{});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("another secret"));
  file_[24] = std::byte{9};
  EXPECT_THAT(check(file_, secret_).error().message, HasSubstr("version"));
}

TEST_P(SegmentCheckTest, AFailingReadIsAnErrorAndNoDamage) {
  for (int good_reads = 0; good_reads < 4; ++good_reads) {
    int left = good_reads;
    const auto read = [&](std::span<std::byte> bytes, std::uint64_t offset) {
      std::copy_n(file_.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
      return left-- > 0;
    };
    const auto counts = check_segment(file_.size(), read, kNumber, secret_);
    ASSERT_FALSE(counts);
    EXPECT_EQ(counts.error().code, ErrorCode::kUnavailable);
  }
}

INSTANTIATE_TEST_SUITE_P(Sealings, SegmentCheckTest,
                         testing::Values(Sealing::kTags, Sealing::kAesGcm), [](const auto& test) {
                           return test.param == Sealing::kTags ? "Tags" : "AesGcm";
                         });

}  // namespace
}  // namespace sluice
