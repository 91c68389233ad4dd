#include "base/keyed_hash.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

// SipHash-1-3 of the bytes 0, 1, 2, .. under the key 00 01 .. 0F, as an independent program gives
// them that also gives the published values of SipHash-2-4.
TEST(KeyedHash, IsSipHash13) {
  const HashKey key{0x0706050403020100, 0x0F0E0D0C0B0A0908};
  std::string bytes;
  for (int i = 0; i < 63; ++i) bytes += static_cast<char>(i);
  EXPECT_EQ(keyed_hash("", key), 0xABAC0158050FC4DC);
  EXPECT_EQ(keyed_hash(bytes.substr(0, 1), key), 0xC9F49BF37D57CA93);
  EXPECT_EQ(keyed_hash(bytes.substr(0, 7), key), 0xD3927D989BB11140);
  EXPECT_EQ(keyed_hash(bytes.substr(0, 8), key), 0x369095118D299A8E);
  EXPECT_EQ(keyed_hash(bytes.substr(0, 15), key), 0xD320D86D2A519956);
  EXPECT_EQ(keyed_hash(bytes, key), 0x9D199062B7BBB3A8);
}

TEST(KeyedHash, TheProcessHasOneKeyThatIsNotZero) {
  EXPECT_EQ(keyed_hash("abc"), keyed_hash("abc"));
  EXPECT_NE(keyed_hash("abc"), keyed_hash("abd"));
  EXPECT_NE(keyed_hash("abc"), keyed_hash("abc", {0, 0}));
}

}  // namespace
}  // namespace sluice
