#include "snapshot/snapshot_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/new_file.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class SnapshotWriterTest : public testing::Test {
 protected:
  static NewSection section(std::string kind, std::string dtype, std::string_view bytes) {
    return {std::move(kind), 1, {{"dtype", std::move(dtype)}}, std::as_bytes(std::span(bytes))};
  }
  Status save(std::vector<NewSection> sections, const SnapshotWriteOptions& options = {}) const {
    return write_snapshot(path_, sections, options);
  }
  // "kind dtype bytes" of each section.
  std::vector<std::string> content() const {
    auto file = SnapshotFile::open(path_);
    EXPECT_TRUE(file) << file.error().message;
    if (!file) return {};
    EXPECT_TRUE(file->verify());
    std::vector<std::string> all;
    for (const SnapshotSection& section : file->table().sections) {
      const auto bytes = file->bytes(section).value();
      all.push_back(section.kind + " " + section.key.front().value + " " +
                    std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
    return all;
  }

  TempDirectory folder_;
  std::string path_ = folder_.file("f.snapshot");
};

TEST_F(SnapshotWriterTest, AddsSectionsAndReplacesThoseWithTheSameKey) {
  ASSERT_TRUE(save({section("graphs", "bf16", "1"), section("graphs", "f32", "2")}));
  ASSERT_TRUE(save({section("graphs", "fp8", "3"), section("graphs", "f32", "4")},
                   {.old_sections = OldSections::kKeep}));
  EXPECT_THAT(content(), ElementsAre("graphs fp8 3", "graphs f32 4", "graphs bf16 1"));
  ASSERT_TRUE(save({section("graphs", "f16", "5")}));
  EXPECT_THAT(content(), ElementsAre("graphs f16 5"));
}

TEST_F(SnapshotWriterTest, StoresEqualBytesOnce) {
  const std::string bytes(10'000, 'b');
  ASSERT_TRUE(save({section("weights", "bf16", bytes), section("weights", "f16", bytes)}));
  const auto file = SnapshotFile::open(path_);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->table().blobs.size(), 1U);
  ASSERT_TRUE(save({section("other", "f16", bytes)}, {.old_sections = OldSections::kKeep}));
  const auto more = SnapshotFile::open(path_);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->table().sections.size(), 3U);
  EXPECT_EQ(more->table().blobs.size(), 1U);
}

TEST_F(SnapshotWriterTest, DropsTheOldestBeyondTheLimits) {
  const std::string large(20'000, 'x');
  for (const char* dtype : {"a", "b", "c"}) {
    ASSERT_TRUE(save({section("graphs", dtype, dtype)},
                     {.old_sections = OldSections::kKeep, .max_per_kind = 2}));
  }
  EXPECT_THAT(content(), ElementsAre("graphs c c", "graphs b b"));
  ASSERT_TRUE(save({section("weights", "d", large)},
                   {.old_sections = OldSections::kKeep, .max_bytes = 24'576}));
  EXPECT_EQ(content().size(), 2U) << "one of the old ones has room";
}

TEST_F(SnapshotWriterTest, ADamagedFileIsNotCarriedOn) {
  ASSERT_TRUE(write_file(path_, "not a snapshot"));
  const Status kept = save({section("a", "b", "c")}, {.old_sections = OldSections::kKeep});
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().message, StartsWith("snapshot " + path_));
  EXPECT_EQ(read_file(path_, 100).value(), "not a snapshot");
  ASSERT_TRUE(save({section("a", "b", "c")}, {.old_sections = OldSections::kKeepIfSound}));
  EXPECT_THAT(content(), ElementsAre("a b c"));
}

TEST_F(SnapshotWriterTest, OneSaverAtATime) {
  const auto other = NewFile::create(path_);
  ASSERT_TRUE(other);
  const Status status = save({section("a", "b", "c")});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              testing::AllOf(StartsWith("snapshot"), HasSubstr("another process is writing it")));
}

TEST_F(SnapshotWriterTest, ReportsProgressAndFollowsTheModeAskedFor) {
  const std::string large(3 * kSnapshotPieceBytes, 'x');
  std::vector<std::uint64_t> done;
  std::uint64_t all = 0;
  ASSERT_TRUE(save({section("weights", "f32", large)},
                   {.for_this_user_only = true, .progress = [&](std::uint64_t d, std::uint64_t a) {
                      done.push_back(d);
                      all = a;
                    }}));
  EXPECT_GE(done.size(), 3U);
  EXPECT_EQ(done.back(), all);
  EXPECT_EQ(all, std::filesystem::file_size(path_));
  struct stat info{};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

}  // namespace
}  // namespace sluice
