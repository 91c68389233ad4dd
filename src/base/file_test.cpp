#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, std::string_view text) const {
    const std::string path = directory_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::filesystem::path directory_;
};

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

TEST_F(FileTest, ReadsWholeFiles) {
  const std::string text("a\0b\nc", 5);
  EXPECT_EQ(read_file(write("f", text), 5).value(), text);
  EXPECT_EQ(read_file(write("empty", ""), 0).value(), "");
}

TEST_F(FileTest, RefusesFilesOverTheLimit) {
  const auto result = read_file(write("f", "123456"), 5);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().message, HasSubstr("6 bytes, more than the limit of 5 bytes"));
}

TEST_F(FileTest, ReadsFilesThatSayTheyAreEmpty) {
  const auto status = read_file("/proc/self/status", 1 << 20);
  ASSERT_TRUE(status);
  EXPECT_THAT(*status, HasSubstr("VmRSS"));
  const auto limited = read_file("/proc/self/status", 10);
  ASSERT_FALSE(limited);
  EXPECT_THAT(limited.error().message, HasSubstr("limit of 10 bytes"));
}

TEST_F(FileTest, ErrorsNameThePathAndTheReason) {
  const std::string path = directory_ / "absent.json";
  const auto absent = read_file(path, 10);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(absent.error().message, path + ": cannot open: No such file or directory");
  EXPECT_THAT(MappedFile::open(path).error().message, HasSubstr("absent.json: cannot open"));
  EXPECT_THAT(read_file(directory_, 10).error().message, HasSubstr("is a directory"));
  EXPECT_FALSE(read_file(std::string("a\0b", 3), 10));
}

TEST_F(FileTest, RefusesPipesWithoutBlocking) {
  const std::string path = directory_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(read_file(path, 10).error().message, HasSubstr("not a regular file"));
  EXPECT_FALSE(MappedFile::open(path));
}

TEST_F(FileTest, WritesAndReplaces) {
  const std::string path = directory_ / "f";
  ASSERT_TRUE(write_file(path, "a longer text"));
  ASSERT_TRUE(write_file(path, std::string_view("a\0b", 3)));
  EXPECT_EQ(read_file(path, 100).value(), std::string_view("a\0b", 3));
  const auto status = write_file(directory_ / "none" / "f", "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().message, "cannot write " + (directory_ / "none" / "f").string());
}

TEST_F(FileTest, MapsAndMoves) {
  auto first = MappedFile::open(write("f", "hello"));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->text(), "hello");
  const std::byte* data = first->data();
  MappedFile second = std::move(*first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.text(), "hello");
  MappedFile third = MappedFile::open(write("g", "x")).value();
  third = std::move(second);
  EXPECT_EQ(third.bytes().size(), 5U);
  EXPECT_EQ(third.text(), "hello");
}

TEST_F(FileTest, MapsTheOpenFileEvenIfThePathNamesAnother) {
  const std::string path = write("f", "first");
  const auto file = open_for_reading(path);
  ASSERT_TRUE(file);
  std::filesystem::remove(path);
  write("f", "another file");
  EXPECT_EQ(MappedFile::map(*file, path).value().text(), "first");
}

TEST(DirectoryName, IsTheLastNameOfThePath) {
  EXPECT_EQ(directory_name("/models/qwen"), "qwen");
  EXPECT_EQ(directory_name("models/qwen/"), "qwen");
  EXPECT_EQ(directory_name("models/qwen/."), "qwen");
  EXPECT_EQ(directory_name("."), std::filesystem::current_path().filename());
  EXPECT_EQ(directory_name("/"), "");
}

TEST_F(FileTest, MapsAnEmptyFileAsEmpty) {
  const auto mapped = MappedFile::open(write("f", ""));
  ASSERT_TRUE(mapped);
  EXPECT_EQ(mapped->size(), 0U);
  EXPECT_EQ(mapped->text(), "");
}

TEST_F(FileTest, DescriptorsAreClosedOnce) {
  auto file = open_for_reading(write("f", "abc"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size, 3U);
  const int number = file->fd.get();
  {
    FileDescriptor moved = std::move(file->fd);
    EXPECT_FALSE(file->fd.valid());
    EXPECT_TRUE(is_open(number));
    FileDescriptor other;
    other = std::move(moved);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

}  // namespace
}  // namespace sluice
