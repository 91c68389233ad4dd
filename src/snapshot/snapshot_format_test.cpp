#include "snapshot/snapshot_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/content_hash.h"

namespace sluice {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

SnapshotTable small_table() {
  const std::string small = "small";
  const std::vector<std::byte> none;
  const std::vector<std::byte> large(kSnapshotPieceBytes + 10, std::byte{7});
  SnapshotTable table;
  for (const auto bytes : {std::as_bytes(std::span(small)), std::span<const std::byte>(none),
                           std::span<const std::byte>(large)}) {
    table.blobs.push_back({0, bytes.size(), hash_pieces(bytes)});
  }
  table.sections = {{"graphs", 1, {{"dtype", "bf16"}, {"device", "cpu"}}, 2},
                    {"graphs", 1, {{"dtype", "f32"}, {"device", "cpu"}}, 0},
                    {"tokenizer", 3, {}, 1}};
  return table;
}

std::vector<std::byte> file_of(SnapshotTable& table) {
  std::vector<std::byte> file = encode_snapshot_head(table);
  const SnapshotBlob& last = table.blobs.back();
  file.resize(static_cast<std::size_t>(last.offset + last.stored_bytes()));
  return file;
}

TEST(SnapshotFormatTest, ReadsWhatWasEncoded) {
  SnapshotTable table = small_table();
  const auto read = parse_snapshot_head(file_of(table));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->sections, table.sections);
  ASSERT_EQ(read->blobs.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->blobs[i].offset, table.blobs[i].offset);
    EXPECT_EQ(read->blobs[i].offset % kSnapshotAlignment, 0U);
    EXPECT_EQ(read->blobs[i].bytes, table.blobs[i].bytes);
    EXPECT_EQ(read->blobs[i].pieces, table.blobs[i].pieces);
  }
  EXPECT_EQ(read->blobs[2].pieces.size(), 2U);
  EXPECT_EQ(read->blobs[2].piece_bytes(1), kSnapshotAlignment);
}

TEST(SnapshotFormatTest, PiecesAreHashedWithTheirPadding) {
  std::vector<std::byte> bytes(10, std::byte{1});
  const auto pieces = hash_pieces(bytes);
  bytes.resize(kSnapshotAlignment);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0], content_hash(bytes));
}

TEST(SnapshotFormatTest, AFlippedBitAnywhereInTheHeadIsTold) {
  SnapshotTable table = small_table();
  std::vector<std::byte> file = file_of(table);
  for (std::size_t i = 0; i < table.blobs[0].offset; ++i) {
    file[i] ^= std::byte{0x10};
    const auto read = parse_snapshot_head(file);
    ASSERT_FALSE(read) << i;
    EXPECT_THAT(read.error().message,
                AnyOf(HasSubstr("damaged"), HasSubstr("not a snapshot"), HasSubstr("has format")));
    file[i] ^= std::byte{0x10};
  }
  EXPECT_TRUE(parse_snapshot_head(file));
}

TEST(SnapshotFormatTest, ATruncatedOrLongerFileIsTold) {
  SnapshotTable table = small_table();
  std::vector<std::byte> file = file_of(table);
  for (const std::size_t length : {std::size_t{0}, std::size_t{5}, kSnapshotHeaderBytes - 1,
                                   kSnapshotHeaderBytes, std::size_t{4096}, file.size() - 1}) {
    EXPECT_FALSE(parse_snapshot_head(std::span(file).first(length))) << length;
  }
  const auto half = parse_snapshot_head(std::span(file).first(file.size() / 2));
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, HasSubstr("truncated"));
  file.resize(file.size() + kSnapshotAlignment);
  EXPECT_FALSE(parse_snapshot_head(file));
}

TEST(SnapshotFormatTest, ALaterFormatIsNamed) {
  SnapshotTable table = small_table();
  std::vector<std::byte> file = file_of(table);
  file[8] = std::byte{2};
  const auto read = parse_snapshot_head(file);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(read.error().message, HasSubstr("has format 2"));
}

TEST(SnapshotFormatTest, RefusesTablesThatPointElsewhere) {
  SnapshotTable blob = small_table();
  blob.sections[0].blob = 3;
  EXPECT_FALSE(parse_snapshot_head(file_of(blob)));

  // Blobs must fill the file.
  SnapshotTable size = small_table();
  std::vector<std::byte> file = file_of(size);
  size.blobs[2].bytes += kSnapshotAlignment;
  const std::vector<std::byte> head = encode_snapshot_head(size);
  std::copy(head.begin(), head.end(), file.begin());
  EXPECT_FALSE(parse_snapshot_head(file));
}

}  // namespace
}  // namespace sluice
