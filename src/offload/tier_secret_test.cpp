#include "offload/tier_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(TierSecret, IsMadeOnceAndOnlyForThisUser) {
  const TempDirectory folder;
  const std::string path = folder.file("state/sluice/kv-secret");
  EXPECT_FALSE(read_tier_secret(path)) << "reading makes none";
  const auto made = load_tier_secret(path);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_NE(*made, HmacKey{});
  EXPECT_EQ(*load_tier_secret(path), *made);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  const auto other = load_tier_secret(folder.file("other"));
  ASSERT_TRUE(other);
  EXPECT_NE(*other, *made);
}

TEST(TierSecret, OthersMustNotReadItAndItsLengthIsFixed) {
  const TempDirectory folder;
  const std::string path = folder.file("secret");
  folder.write("secret", std::string(32, 'x'));
  chmod(path.c_str(), 0644);
  auto loaded = load_tier_secret(path);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("chmod 600"));
  chmod(path.c_str(), 0600);
  EXPECT_TRUE(load_tier_secret(path));
  folder.write("secret", "short");
  loaded = load_tier_secret(path);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("5 bytes"));
}

}  // namespace
}  // namespace sluice
