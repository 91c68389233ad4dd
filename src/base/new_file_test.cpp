#include "base/new_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class NewFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-new-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = pattern + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string content() const { return read_file(path_, 1 << 20).value_or("absent"); }
  bool part_exists() const { return std::filesystem::exists(path_ + ".part"); }
  Status save(std::string_view text) const {
    ASSIGN_OR_RETURN(NewFile file, NewFile::create(path_));
    RETURN_IF_ERROR(file.write(bytes_of(text)));
    return file.commit();
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(NewFileTest, AppearsWholeAtCommit) {
  ASSERT_TRUE(save("old"));
  {
    auto file = NewFile::create(path_, 0600);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(bytes_of("ne")));
    ASSERT_TRUE(file->write(bytes_of("w")));
    EXPECT_EQ(content(), "old");
    ASSERT_TRUE(file->commit());
  }
  EXPECT_EQ(content(), "new");
  EXPECT_FALSE(part_exists());
  struct stat info{};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(NewFileTest, WithoutCommitNothingStays) {
  ASSERT_TRUE(save("old"));
  {
    auto file = NewFile::create(path_);
    ASSERT_TRUE(file && file->write(bytes_of("half")));
  }
  EXPECT_EQ(content(), "old");
  EXPECT_FALSE(part_exists());
}

TEST_F(NewFileTest, OneWriterAtATime) {
  auto first = NewFile::create(path_);
  ASSERT_TRUE(first);
  const auto second = NewFile::create(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(second.error().message, testing::HasSubstr("another process is writing it"));
  EXPECT_TRUE(part_exists()) << "the second writer must not remove the file of the first";
  ASSERT_TRUE(first->write(bytes_of("first")) && first->commit());
  EXPECT_EQ(content(), "first");
  EXPECT_TRUE(save("second"));
  EXPECT_EQ(content(), "second");
}

TEST_F(NewFileTest, UsesWhatAKilledWriterLeft) {
  ASSERT_TRUE(write_file(path_ + ".part", "long and unfinished"));
  ASSERT_TRUE(save("new"));
  EXPECT_EQ(content(), "new");
}

TEST_F(NewFileTest, ErrorsNameThePathAndTheReason) {
  const auto absent = NewFile::create(folder_.string() + "/absent/file");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message,
              testing::HasSubstr("absent/file.part: cannot be written: No"));
}

TEST_F(NewFileTest, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(save("old"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  auto* const action = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = save(std::string(10'000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, action);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::HasSubstr("file.part: cannot be written: File too"));
  EXPECT_EQ(content(), "old");
  EXPECT_FALSE(part_exists());
}

}  // namespace
}  // namespace sluice
