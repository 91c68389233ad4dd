#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "profile/machine_profile.h"
#include "profile/test_profiles.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ProfileFileTest : public testing::Test {
 protected:
  void SetUp() override {
    // Tests run at the same time, each in a process of its own.
    folder_ = testing::TempDir() + "sluice_profile_file_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    if (const char* cache = std::getenv("XDG_CACHE_HOME")) cache_ = cache;
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    if (cache_) {
      ::setenv("XDG_CACHE_HOME", cache_->c_str(), 1);
    } else {
      ::unsetenv("XDG_CACHE_HOME");
    }
  }

  std::string folder_;
  std::optional<std::string> cache_;
};

TEST_F(ProfileFileTest, IsSavedInNewFoldersAndLoaded) {
  MachineProfile profile = test::test_profile(0);
  ASSERT_TRUE(fit_profile(profile));
  const std::string path = folder_ + "/a/b/p.json";
  ASSERT_TRUE(save_profile(profile, path));
  const auto loaded = load_profile(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(profile_to_json(*loaded), profile_to_json(profile));
  // Nothing unfinished is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/a/b"),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(ProfileFileTest, ErrorsNameTheFile) {
  const auto absent = load_profile(folder_ + "/none.json");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/file") << "x";
  const auto status = save_profile(test::test_profile(0), folder_ + "/file/p.json");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(folder_ + "/file"));
  EXPECT_THAT(load_profile(folder_ + "/file").error().message, HasSubstr(folder_ + "/file"));
}

TEST_F(ProfileFileTest, EachIdentityHasItsOwnPlace) {
  ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  const ProfileIdentity one = test::test_profile(0).identity;
  ProfileIdentity other = one;
  other.threads = 8;
  EXPECT_THAT(default_profile_path(one), StartsWith(folder_ + "/sluice/profiles/"));
  EXPECT_EQ(default_profile_path(one), default_profile_path(one));
  EXPECT_NE(default_profile_path(one), default_profile_path(other));
}

}  // namespace
}  // namespace sluice
