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
  struct stat facts{};
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

TEST(TierSecret, AKeyIsBytesOrHexadecimalDigitsOfThisUser) {
  const TempDirectory folder;
  const auto key = [&](const std::string& text, int mode = 0600) {
    folder.write("key", text);
    chmod(folder.file("key").c_str(), static_cast<mode_t>(mode));
    return read_tier_key(folder.file("key"));
  };
  const auto bytes = key(std::string(32, '\x1f'));
  ASSERT_TRUE(bytes) << bytes.error().message;
  std::string digits;
  for (int i = 0; i < 32; ++i) digits += i % 2 == 0 ? "1f" : "1F";
  EXPECT_EQ(*key(digits), *bytes);
  EXPECT_EQ(*key(digits + "\n"), *bytes);
  EXPECT_NE(*key(std::string(32, '\x20')), *bytes);
  for (const std::string& bad :
       {std::string(), std::string(31, 'x'), std::string(33, 'x'), digits + "1f", digits + "\n\n",
        std::string(64, 'g'), "0x" + digits.substr(2), "-1" + digits.substr(2)}) {
    const auto refused = key(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().message, HasSubstr("openssl rand"));
  }
  const auto open = key(digits, 0640);
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().message, HasSubstr("chmod 600"));
  EXPECT_FALSE(read_tier_key(folder.file("none")));
}

}  // namespace
}  // namespace sluice
