#include "engine/weight_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kBytes = 4 * 4096;

class WeightWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "weights_XXXXXX";
    fd_ = FileDescriptor(mkstemp(path_.data()));
    const std::string text(kBytes, 'w');
    ASSERT_EQ(write(fd_.get(), text.data(), kBytes), static_cast<ssize_t>(kBytes));
    data_ = static_cast<const char*>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd_.get(), 0));
    watch_.emplace();
    ASSERT_TRUE(watch_->add(path_, fd_.get(), reinterpret_cast<const std::byte*>(data_), kBytes));
    fd_.close();
  }
  void TearDown() override {
    watch_.reset();
    munmap(const_cast<char*>(data_), kBytes);
    std::remove(path_.c_str());
  }
  char at(std::size_t offset) const { return static_cast<const volatile char*>(data_)[offset]; }

  TimePoint now_{std::chrono::seconds(1000)};
  std::string path_;
  FileDescriptor fd_;
  const char* data_ = nullptr;
  std::optional<WeightWatch> watch_;
};

TEST_F(WeightWatchTest, AFileThatStaysIsFine) {
  EXPECT_EQ(at(kBytes - 1), 'w');
  EXPECT_TRUE(watch_->check_pages());
  EXPECT_TRUE(watch_->check_files(now_));
}

TEST_F(WeightWatchTest, AMissingPageIsAnErrorThatNamesTheFile) {
  ASSERT_EQ(truncate(path_.c_str(), 4096), 0);
  EXPECT_TRUE(watch_->check_pages()) << "nothing that is missing was read";
  EXPECT_EQ(at(2 * 4096), 0);
  const auto status = watch_->check_pages();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr(path_), HasSubstr("truncated"), HasSubstr("restart the server")));
}

TEST_F(WeightWatchTest, AChangeInPlaceIsNoticed) {
  std::FILE* file = std::fopen(path_.c_str(), "r+");
  ASSERT_NE(file, nullptr);
  std::fputc('x', file);
  std::fclose(file);
  const auto status = watch_->check_files(now_);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr(path_), HasSubstr("changed in place")));
}

TEST_F(WeightWatchTest, AFileIsLookedAtNowAndThenOnly) {
  ASSERT_TRUE(watch_->check_files(now_));
  EXPECT_EQ(watch_->next_check(), now_ + WeightWatch::kInterval);
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  EXPECT_TRUE(watch_->check_files(now_ + WeightWatch::kInterval / 2));
  EXPECT_FALSE(watch_->check_files(now_ + WeightWatch::kInterval));
  EXPECT_FALSE(watch_->check_files_now(now_ + WeightWatch::kInterval)) << "however recently";
  EXPECT_EQ(WeightWatch().next_check(), std::nullopt);
}

TEST_F(WeightWatchTest, AReplacedFileChangesNothing) {
  const std::string other = path_ + ".new";
  std::FILE* file = std::fopen(other.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  ASSERT_EQ(std::rename(other.c_str(), path_.c_str()), 0);
  EXPECT_TRUE(watch_->check_files(now_));
  EXPECT_EQ(at(kBytes - 1), 'w');
}

}  // namespace
}  // namespace sluice
