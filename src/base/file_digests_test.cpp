#include "base/file_digests.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

#include "base/content_hash.h"
#include "base/file.h"

namespace sluice {
namespace {

class FileDigestsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "sluice-digests-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/file";
    cache_ = folder_ + "/digests";
    ASSERT_TRUE(write_file(path_, "content"));
    settle();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Long enough for the next change to have other times.
  static void settle() {
    const timespec pause{0, 100'000'000};
    nanosleep(&pause, nullptr);
  }

  std::string folder_;
  std::string path_;
  std::string cache_;
};

TEST_F(FileDigestsTest, ReadsAFileOnceInAllProcesses) {
  {
    FileDigests digests(cache_);
    EXPECT_EQ(digests.digest(path_).value(), content_hash("content"));
    EXPECT_EQ(digests.digest(path_).value(), content_hash("content"));
    EXPECT_EQ(digests.files_read(), 1U);
    ASSERT_TRUE(digests.save());
  }
  FileDigests next(cache_);
  EXPECT_EQ(next.digest(path_).value(), content_hash("content"));
  EXPECT_EQ(next.files_read(), 0U);
  std::filesystem::copy_file(path_, folder_ + "/copy");
  EXPECT_EQ(next.digest(folder_ + "/copy").value(), content_hash("content"));
  EXPECT_EQ(next.files_read(), 1U);
}

TEST_F(FileDigestsTest, ReadsAChangedFileAgainThoughItsTimeWasSetBack) {
  FileDigests digests(cache_);
  ASSERT_TRUE(digests.digest(path_));
  struct stat before{};
  ASSERT_EQ(stat(path_.c_str(), &before), 0);
  ASSERT_TRUE(write_file(path_, "CONTENT"));
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  EXPECT_EQ(digests.digest(path_).value(), content_hash("CONTENT"));
}

// On a busy machine the second look may come too late for "just", so the test tries again.
TEST_F(FileDigestsTest, DoesNotTrustAFileThatHasJustChanged) {
  for (int i = 0; i < 1000; ++i) {
    FileDigests digests(cache_);
    ASSERT_TRUE(write_file(path_, "new" + std::to_string(i)));
    ASSERT_TRUE(digests.digest(path_));
    ASSERT_TRUE(digests.digest(path_));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    struct stat info{};
    ASSERT_EQ(stat(path_.c_str(), &info), 0);
    const auto changed =
        std::chrono::seconds(info.st_ctim.tv_sec) + std::chrono::nanoseconds(info.st_ctim.tv_nsec);
    if (now - changed > std::chrono::milliseconds(40)) continue;
    EXPECT_EQ(digests.files_read(), 2U);
    return;
  }
  FAIL() << "no two looks within 40 ms after a change";
}

TEST_F(FileDigestsTest, ADamagedCacheIsEmpty) {
  FileDigests digests(cache_);
  ASSERT_TRUE(digests.digest(path_));
  ASSERT_TRUE(digests.save());
  std::string bytes = read_file(cache_, 1 << 20).value();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(bytes[i] ^ 2);
    EXPECT_TRUE(FileDigests::decode(std::as_bytes(std::span(bytes))).empty()) << i;
    bytes[i] = static_cast<char>(bytes[i] ^ 2);
    EXPECT_TRUE(FileDigests::decode(std::as_bytes(std::span(bytes)).first(i)).empty()) << i;
  }
  EXPECT_EQ(FileDigests::decode(std::as_bytes(std::span(bytes))).size(), 1U);
}

TEST_F(FileDigestsTest, ALineSaysThatALargeFileIsRead) {
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(FileDigests::kToldBytes)), 0);
  FileDigests digests(cache_);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(digests.digest(path_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr(path_ + ": reading 128 MiB for its digest"));
}

TEST_F(FileDigestsTest, ErrorsNameTheFile) {
  FileDigests digests;
  const auto absent = digests.digest(folder_ + "/absent");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(digests.save());
}

}  // namespace
}  // namespace sluice
