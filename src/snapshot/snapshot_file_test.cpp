#include "snapshot/snapshot_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/content_hash.h"
#include "snapshot/snapshot_writer.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::span<const std::byte> raw(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const SnapshotKey kBf16 = {{"config", "c1"}, {"dtype", "bf16"}};
const SnapshotKey kF32 = {{"config", "c1"}, {"dtype", "f32"}};

class SnapshotFileTest : public testing::Test {
 protected:
  void SetUp() override {
    large_.assign(kSnapshotPieceBytes + 100, 'l');
    const std::vector<NewSection> sections = {{"graphs", 1, kBf16, raw("bf16 graphs")},
                                              {"graphs", 1, kF32, raw("f32 graphs")},
                                              {"weights", 2, kF32, raw(large_)}};
    ASSERT_TRUE(write_snapshot(path_, sections, {}));
    auto bytes = read_file(path_, std::uint64_t{1} << 30);
    ASSERT_TRUE(bytes);
    original_ = *std::move(bytes);
  }

  std::string read(std::string_view kind, std::uint32_t version, const SnapshotKey& key) const {
    auto file = SnapshotFile::open(path_);
    if (!file) return file.error().message;
    const auto section = file->find(kind, version, key);
    if (!section) return section.error().message;
    const auto bytes = file->bytes(**section);
    if (!bytes) return bytes.error().message;
    EXPECT_EQ(text_of(file->copy(**section).value()), text_of(*bytes));
    return std::string(text_of(*bytes));
  }
  void write(std::string_view bytes) const { ASSERT_TRUE(write_file(path_, bytes)); }

  TempDirectory folder_;
  std::string path_ = folder_.file("f.snapshot");
  std::string large_;
  std::string original_;
};

TEST_F(SnapshotFileTest, FindsSectionsByKindVersionAndKey) {
  EXPECT_EQ(read("graphs", 1, kBf16), "bf16 graphs");
  EXPECT_EQ(read("graphs", 1, kF32), "f32 graphs");
  EXPECT_EQ(read("weights", 2, kF32), large_);
}

TEST_F(SnapshotFileTest, SaysWhatASectionWasMadeFor) {
  EXPECT_THAT(read("tokenizer", 1, {}),
              AllOf(StartsWith("snapshot "), HasSubstr("has no section 'tokenizer'")));
  EXPECT_THAT(read("graphs", 1, {{"config", "c1"}, {"dtype", "fp8"}}),
              HasSubstr("section 'graphs' was made for dtype 'bf16', this start has 'fp8'"));
  EXPECT_THAT(read("graphs", 1, {{"config", "c2"}, {"dtype", "f32"}}),
              HasSubstr("was made for config 'c1', this start has 'c2'"));
  EXPECT_THAT(read("graphs", 9, kF32), HasSubstr("has version 1, this version of sluice reads"));
  EXPECT_THAT(read("graphs", 1, {{"config", "c1"}}), HasSubstr("does not know"));
}

TEST_F(SnapshotFileTest, AFlippedBitIsToldWhereverItLies) {
  // Bytes of the head, of each blob and of its padding; snapshot_format_test.cpp has all of a head.
  for (std::size_t i = 0; i < original_.size(); i += i < 400 ? 7 : 97'001) {
    std::string flipped = original_;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x04);
    write(flipped);
    auto file = SnapshotFile::open(path_);
    const Status status = file ? file->verify() : Status(file.error());
    ASSERT_FALSE(status) << "byte " << i;
    EXPECT_THAT(status.error().message, StartsWith("snapshot")) << i;
  }
}

TEST_F(SnapshotFileTest, DamageOfOneSectionLeavesTheOthers) {
  std::string flipped = original_;
  flipped[flipped.find("f32 graphs")] = 'x';
  write(flipped);
  EXPECT_THAT(read("graphs", 1, kF32), HasSubstr("section 'graphs' is damaged"));
  EXPECT_EQ(read("graphs", 1, kBf16), "bf16 graphs");
  const auto file = SnapshotFile::open(path_);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->copy(file->table().sections[1]));
  EXPECT_TRUE(file->copy(file->table().sections[0]));
}

TEST_F(SnapshotFileTest, LargeSectionsAreCheckedPieceByPiece) {
  std::string flipped = original_;
  flipped[flipped.size() - 1] = 1;  // padding of the second piece
  write(flipped);
  const auto file = SnapshotFile::open(path_);
  ASSERT_TRUE(file);
  const SnapshotSection& section = file->table().sections[2];
  const auto stored = file->unchecked_bytes(section);
  const SnapshotBlob& blob = file->table().blobs[section.blob];
  ASSERT_EQ(blob.pieces.size(), 2U);
  EXPECT_EQ(content_hash(stored.first(kSnapshotPieceBytes)), blob.pieces[0]);
  EXPECT_NE(content_hash(stored.subspan(kSnapshotPieceBytes)), blob.pieces[1]);
}

TEST_F(SnapshotFileTest, TruncatedFilesAreRefused) {
  for (std::size_t length = 0; length < original_.size(); length += length < 200 ? 9 : 40'009) {
    write(original_.substr(0, length));
    const auto file = SnapshotFile::open(path_);
    ASSERT_FALSE(file) << length;
    EXPECT_THAT(file.error().message, StartsWith("snapshot " + path_));
  }
}

TEST_F(SnapshotFileTest, AFileThatShrinksWhileItIsMappedIsToldAndDoesNoHarm) {
  auto file = SnapshotFile::open(path_);
  ASSERT_TRUE(file);
  ASSERT_EQ(truncate(path_.c_str(), 4096), 0);
  const auto bytes = file->bytes(file->table().sections[0]);
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().message, HasSubstr("damaged"));
  EXPECT_FALSE(file->copy(file->table().sections[2]));
  EXPECT_FALSE(file->verify());
}

TEST_F(SnapshotFileTest, AFileThatIsReplacedWhileItIsMappedStaysAsItWas) {
  auto file = SnapshotFile::open(path_);
  ASSERT_TRUE(file);
  ASSERT_TRUE(write_snapshot(path_, std::vector<NewSection>{}, {}));
  EXPECT_EQ(text_of(file->bytes(file->table().sections[0]).value()), "bf16 graphs");
  EXPECT_TRUE(file->verify());
}

TEST_F(SnapshotFileTest, AnAbsentFileIsNotFound) {
  const auto file = SnapshotFile::open(folder_.file("absent"));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(file.error().message, StartsWith("snapshot: "));
}

}  // namespace
}  // namespace sluice
