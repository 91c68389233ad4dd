#include "snapshot/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_folder.h"
#include "base/file.h"
#include "base/new_file.h"
#include "snapshot/auto_folder.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

// One start with one part, a graph that says "made of KEY".
class SnapshotSessionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* old = std::getenv("XDG_CACHE_HOME")) old_cache_ = old;
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  void TearDown() override {
    if (old_cache_) {
      setenv("XDG_CACHE_HOME", old_cache_->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
  }

  static Snapshot open(const SnapshotChoice& choice) {
    auto snapshot = Snapshot::open(choice, {"config", "tokenizer"}, nullptr);
    EXPECT_TRUE(snapshot) << snapshot.error().message;
    return *std::move(snapshot);
  }
  static SnapshotKey key_of(const std::string& dtype) { return {{"dtype", dtype}}; }

  // Returns the part as this start has it in the end.
  static std::string start(Snapshot& snapshot, const std::string& dtype) {
    const SnapshotKey key = key_of(dtype);
    std::string made;
    if (const auto bytes = snapshot.find(kGraphsSection, key)) {
      made.assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
      snapshot.restored(kGraphsSection);
    } else {
      made = "made of " + dtype;
      snapshot.offer(kGraphsSection, key,
                     [made]() -> Result<std::vector<std::byte>> { return bytes_of(made); });
    }
    snapshot.collect();
    snapshot.settle();
    return made;
  }
  static std::string auto_path() { return auto_snapshot_path("configtokenizer").value(); }

  TempDirectory folder_;
  std::optional<std::string> old_cache_;
};

TEST_F(SnapshotSessionTest, AutoRestoresWhatTheLastStartKept) {
  const SnapshotChoice choice{SnapshotMode::kAuto};
  Snapshot first = open(choice);
  EXPECT_EQ(start(first, "bf16"), "made of bf16");
  ASSERT_EQ(first.outcomes().size(), 1U);
  EXPECT_FALSE(first.outcomes()[0].restored);

  Snapshot second = open(choice);
  EXPECT_EQ(start(second, "bf16"), "made of bf16");
  EXPECT_TRUE(second.outcomes()[0].restored);
  Snapshot other = open(choice);
  EXPECT_EQ(start(other, "f32"), "made of f32");
  EXPECT_FALSE(other.outcomes()[0].restored);
  for (const char* dtype : {"bf16", "f32"}) {
    Snapshot again = open(choice);
    EXPECT_EQ(start(again, dtype), std::string("made of ") + dtype);
    EXPECT_TRUE(again.outcomes()[0].restored) << dtype;
  }
}

TEST_F(SnapshotSessionTest, OffFindsAndKeepsNothing) {
  Snapshot snapshot = open({SnapshotMode::kOff});
  EXPECT_EQ(start(snapshot, "bf16"), "made of bf16");
  EXPECT_FALSE(std::filesystem::exists(auto_path()));
}

TEST_F(SnapshotSessionTest, AFileIsReadAndNeverWritten) {
  Snapshot collector = open({SnapshotMode::kCollect});
  start(collector, "bf16");
  EXPECT_THAT(collector.collected(), ElementsAre("graphs"));
  const std::string path = folder_.file("f.snapshot");
  ASSERT_TRUE(collector.write(path, OldSections::kDrop, {}));
  const std::string before = read_file(path, 1 << 20).value();

  Snapshot same = open({SnapshotMode::kFile, path});
  EXPECT_EQ(start(same, "bf16"), "made of bf16");
  EXPECT_TRUE(same.outcomes()[0].restored);
  testing::internal::CaptureStderr();
  Snapshot other = open({SnapshotMode::kFile, path});
  EXPECT_EQ(start(other, "f32"), "made of f32");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("section 'graphs' was made for dtype 'bf16', this start has 'f32'; made"));
  EXPECT_THAT(other.outcomes()[0].reason, HasSubstr("was made for dtype 'bf16'"));
  EXPECT_EQ(read_file(path, 1 << 20).value(), before);
}

TEST_F(SnapshotSessionTest, OnlyAnAbsentFileOfTheUsersIsAnError) {
  const auto absent = Snapshot::open({SnapshotMode::kFile, folder_.file("absent")}, {}, nullptr);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("--snapshot: snapshot: "));
  folder_.write("damaged", "not a snapshot at all");
  testing::internal::CaptureStderr();
  Snapshot damaged = open({SnapshotMode::kFile, folder_.file("damaged")});
  EXPECT_EQ(start(damaged, "bf16"), "made of bf16");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is not a snapshot"));
}

TEST_F(SnapshotSessionTest, DamageOfUnusedBytesIsToldAndAutoBeginsAnew) {
  for (const char* dtype : {"bf16", "f32"}) {
    Snapshot snapshot = open({SnapshotMode::kAuto});
    start(snapshot, dtype);
  }
  std::string bytes = read_file(auto_path(), 1 << 20).value();
  const std::size_t at = bytes.find("made of bf16");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 100] = 'x';  // padding of a section that the next start does not use
  ASSERT_TRUE(write_file(auto_path(), bytes));
  testing::internal::CaptureStderr();
  Snapshot snapshot = open({SnapshotMode::kAuto});
  EXPECT_EQ(start(snapshot, "f32"), "made of f32");
  EXPECT_TRUE(snapshot.outcomes()[0].restored);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("section 'graphs' is damaged"));
  EXPECT_FALSE(std::filesystem::exists(auto_path()));
}

TEST_F(SnapshotSessionTest, EachDamagedSectionIsTold) {
  for (const char* dtype : {"bf16", "f32", "f16"}) {
    Snapshot snapshot = open({SnapshotMode::kAuto});
    start(snapshot, dtype);
  }
  std::string bytes = read_file(auto_path(), 1 << 20).value();
  for (const char* contents : {"made of bf16", "made of f32"}) {
    const std::size_t at = bytes.find(contents);
    ASSERT_NE(at, std::string::npos);
    bytes[at + 100] = 'x';
  }
  ASSERT_TRUE(write_file(auto_path(), bytes));
  testing::internal::CaptureStderr();
  Snapshot snapshot = open({SnapshotMode::kAuto});
  EXPECT_EQ(start(snapshot, "f16"), "made of f16");
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 2) << told;
}

TEST_F(SnapshotSessionTest, RejectedBytesAreToldAndMadeAgain) {
  Snapshot first = open({SnapshotMode::kAuto});
  start(first, "bf16");
  Snapshot second = open({SnapshotMode::kAuto});
  testing::internal::CaptureStderr();
  ASSERT_TRUE(second.find(kGraphsSection, key_of("bf16")));
  second.rejected(kGraphsSection, "op 3 differs");
  second.offer(kGraphsSection, key_of("bf16"),
               []() -> Result<std::vector<std::byte>> { return bytes_of("made again"); });
  second.collect();
  second.settle();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("does not fit: op 3 differs; made"));
  Snapshot third = open({SnapshotMode::kAuto});
  EXPECT_EQ(start(third, "bf16"), "made again");
}

TEST_F(SnapshotSessionTest, AutoWithoutAPrivateFolderSaysSoAndServes) {
  ASSERT_TRUE(std::filesystem::create_directories(folder_.file("sluice/snapshots")));
  ASSERT_EQ(chmod(folder_.file("sluice/snapshots").c_str(), 0755), 0);
  testing::internal::CaptureStderr();
  Snapshot snapshot = open({SnapshotMode::kAuto});
  EXPECT_EQ(start(snapshot, "bf16"), "made of bf16");
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("snapshot: nothing is kept for the next start"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

TEST_F(SnapshotSessionTest, AutoLeavesTheWorkToAStartThatIsWriting) {
  const auto other = NewFile::create(auto_path());
  ASSERT_TRUE(other);
  testing::internal::CaptureStderr();
  Snapshot snapshot = open({SnapshotMode::kAuto});
  EXPECT_EQ(start(snapshot, "bf16"), "made of bf16");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(SnapshotSessionTest, AutoReadsNoFileThatOthersCanWrite) {
  Snapshot first = open({SnapshotMode::kAuto});
  start(first, "bf16");
  ASSERT_EQ(chmod(auto_path().c_str(), 0666), 0);
  testing::internal::CaptureStderr();
  Snapshot second = open({SnapshotMode::kAuto});
  EXPECT_FALSE(second.find(kGraphsSection, key_of("bf16")));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("others may write it"));
}

TEST_F(SnapshotSessionTest, AutoReadsNoFileOfAnotherUser) {
  Snapshot first = open({SnapshotMode::kAuto});
  start(first, "bf16");
  constexpr uid_t kOtherUser = 65534;
  if (chown(auto_path().c_str(), kOtherUser, kOtherUser) != 0) {
    GTEST_SKIP() << "only root can give a file away";
  }
  testing::internal::CaptureStderr();
  Snapshot second = open({SnapshotMode::kAuto});
  EXPECT_FALSE(second.find(kGraphsSection, key_of("bf16")));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("belongs to another user"));
}

TEST_F(SnapshotSessionTest, AutoKeepsTheNewestFilesWithinItsLimit) {
  const std::string folder = private_cache_folder("snapshots").value();
  for (int i = 0; i < 3; ++i) {
    const std::string path = folder + "/" + std::to_string(i) + ".snapshot";
    ASSERT_TRUE(write_file(path, "x"));
    std::filesystem::resize_file(path, kMaxAutoBytes / 2);
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(path, now - std::chrono::hours(3 - i));
  }
  limit_auto_folder(folder + "/2.snapshot");
  EXPECT_FALSE(std::filesystem::exists(folder + "/0.snapshot"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/1.snapshot"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/2.snapshot"));
}

}  // namespace
}  // namespace sluice
