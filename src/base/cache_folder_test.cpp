#include "base/cache_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {
namespace {

// Sets a variable for a test and restores it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedVariable() { set(old_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

class CacheFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    cache_.emplace("XDG_CACHE_HOME", folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::optional<ScopedVariable> cache_;
};

TEST_F(CacheFolderTest, FollowsTheEnvironment) {
  EXPECT_EQ(cache_folder(), folder_ + "/sluice");
  const ScopedVariable relative("XDG_CACHE_HOME", "relative");
  {
    const ScopedVariable home("HOME", "/home-of-nobody");
    EXPECT_EQ(cache_folder(), "/home-of-nobody/.cache/sluice");
  }
  const ScopedVariable no_home("HOME", std::nullopt);
  EXPECT_EQ(cache_folder(), "");
  const auto none = private_cache_folder("snapshots");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
}

TEST_F(CacheFolderTest, MakesAFolderForThisUserAlone) {
  const auto folder = private_cache_folder("snapshots");
  ASSERT_TRUE(folder) << folder.error().message;
  struct stat info{};
  ASSERT_EQ(stat(folder->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  EXPECT_EQ(private_cache_folder("snapshots").value(), *folder);
}

TEST_F(CacheFolderTest, RefusesWhatOthersCouldHaveWritten) {
  const auto folder = private_cache_folder("snapshots");
  ASSERT_TRUE(folder);
  const std::string path = *folder + "/file";
  ASSERT_TRUE(write_file(path, "text"));
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(open_own_file(path));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(open_own_file(path));
  ASSERT_EQ(chmod(folder->c_str(), 0755), 0);
  const auto open = private_cache_folder("snapshots");
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().message, testing::HasSubstr("mode 0700"));
}

}  // namespace
}  // namespace sluice
